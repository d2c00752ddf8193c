_steno() {
    local typed=${words[CURRENT]} line
    local -a before described unfinished plain
    before=("${(@)words[2,CURRENT-1]}")
    for line in "${(@f)$(emulate sh; _steno_candidates "$typed" "${before[@]}")}"; do
        case $line in
            '') ;;
            '<files>') _files ;;
            '<folders>') _files -/ ;;
            *$'\t'*) described+=("${line%%$'\t'*}:${line#*$'\t'}") ;;
            *[/:]) unfinished+=("$line") ;;
            *) plain+=("$line") ;;
        esac
    done
    (( $#described )) && _describe -t commands command described
    (( $#unfinished )) && compadd -S '' -a unfinished
    (( $#plain )) && compadd -a plain
    return 0
}
if [ "$funcstack[1]" = _steno ]; then
    _steno "$@"
else
    compdef _steno steno
fi
