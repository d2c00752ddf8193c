
# The words as steno sees them: bash also splits them at `:` and `=`.
_steno() {
    local line=${COMP_LINE:0:COMP_POINT} word head _steno_root=
    local -a typed=() COMP_WORDS=()
    IFS=$' \t' read -ra typed <<<"$line"
    [[ $line == *[$' \t'] ]] && typed+=("")
    for word in "${typed[@]}"; do
        case $word in
            --*=*) COMP_WORDS+=("${word%%=*}" "${word#*=}") ;;
            *) COMP_WORDS+=("$word") ;;
        esac
        [[ ${#COMP_WORDS[@]} -gt 1 && ${COMP_WORDS[-2]} == --root ]] && _steno_root=${COMP_WORDS[-1]}
    done
    local COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    word=${COMP_WORDS[-1]}
    _shtab_steno
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[/:] ]] && compopt -o nospace 2>/dev/null
    head=${word%"${word##*:}"}
    if [[ -n $head && $COMP_WORDBREAKS == *:* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"$head"}")
    fi
    return 0
}
complete -F _steno steno
