_steno_session_ids() {
    local id
    while IFS= read -r id; do
        [[ $id == "$1"* ]] && printf '%s\n' "$id"
    done < <(_steno_sessions "$1" "$_steno_root")
}

# A path where no session id begins like the word: the name of a session can also be that of a file.
_steno_ids_or_files() {
    local found=$(_steno_session_ids "$1")
    if [[ -n $found ]]; then
        printf '%s\n' "$found"
    else
        compgen -f -- "$1"
    fi
}
