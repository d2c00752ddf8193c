_steno() {
    # Cut anew: to bash a `:` begins another word, to steno it is part of an id.
    local line=${COMP_LINE:0:COMP_POINT} typed= candidate head
    local -a words found=()
    IFS=$' \t' read -ra words <<<"$line"
    if [[ $line != *[$' \t'] ]]; then
        typed=${words[-1]}
        unset 'words[-1]'
    fi
    while IFS= read -r candidate; do
        candidate=${candidate%%$'\t'*}
        case $candidate in
            '<files>') mapfile -t -O "${#found[@]}" found < <(compgen -f -- "$typed") ;;
            '<folders>') mapfile -t -O "${#found[@]}" found < <(compgen -d -- "$typed") ;;
            "$typed"*) found+=("$candidate") ;;
        esac
        [[ $candidate == '<'* ]] && compopt -o filenames 2>/dev/null
    done < <(_steno_candidates "$typed" "${words[@]:1}")
    if [[ ${#found[@]} == 1 && ${found[0]} == *[/:] ]]; then
        compopt -o nospace 2>/dev/null
    fi
    head=${typed%"${typed##*:}"}
    if [[ -n $head && $COMP_WORDBREAKS == *:* ]]; then
        found=("${found[@]#"$head"}")
    fi
    COMPREPLY=("${found[@]}")
}
complete -F _steno steno
