_steno_session_ids() {
    local id root
    local -a before unfinished plain
    before=(${(Q)${(z)LBUFFER}})
    for id in ${before:#^--root=*}; root=${id#--root=}
    (( ${before[(I)--root]} )) && root=${before[${before[(I)--root]} + 1]}
    for id in ${(f)"$(emulate sh; _steno_sessions "$PREFIX" "$root")"}; do
        case $id in
            *[/:]) unfinished+=("$id") ;;
            *) plain+=("$id") ;;
        esac
    done
    (( $#unfinished )) && compadd -S '' -a unfinished
    (( $#plain )) && compadd -a plain
}

# A path where no session id begins like the word: the name of a session can also be that of a file.
_steno_ids_or_files() {
    _steno_session_ids || _files
}
