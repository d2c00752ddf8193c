# Session ids from the folders of the root, in plain sh: no daemon is started, no Python runs.

# The mounts of the root in use, as name=folder.
_steno_mounts() {
    sed -n '/^\[mounts\]/,/^\[/s/^ *\([a-z][a-z0-9-]*\) *= *"\([^"]*\)".*/\1=\2/p' \
        "$1/config.toml" 2>/dev/null
}

# The sessions whose id begins with $1, one folder at a time as paths are completed; $2 is --root.
_steno_sessions() {
    _steno_home=${2:-${STENO_HOME:-${XDG_STATE_HOME:-$HOME/.local/state}/steno}}
    case $_steno_home in
        "~/"*) _steno_home=$HOME/${_steno_home#"~/"} ;;
    esac
    case $1 in
        *:*)
            _steno_mounts "$_steno_home" | while IFS='=' read -r _steno_name _steno_tree; do
                case $_steno_tree in
                    "~/"*) _steno_tree=$HOME/${_steno_tree#"~/"} ;;
                esac
                [ "$_steno_name" = "${1%%:*}" ] &&
                    _steno_below "$_steno_tree" "$_steno_name:" "${1#*:}"
            done
            ;;
        *)
            _steno_below "$_steno_home/sessions" "" "$1"
            _steno_mounts "$_steno_home" | while IFS='=' read -r _steno_name _steno_tree; do
                printf '%s:\n' "$_steno_name"
            done
            ;;
    esac
}

# The sessions of the tree $1 with the prefix $2 in their ids that continue with $3; an id that ends
# with `/` has only sessions below it.
_steno_below() {
    case $3 in
        */*) _steno_inside=${3%/*}/ ;;
        *) _steno_inside= ;;
    esac
    for _steno_folder in "$1/$3"*/; do
        _steno_name=${_steno_folder%/}
        _steno_id=$2$_steno_inside${_steno_name##*/}
        if [ -e "${_steno_folder}context.jsonl" ]; then
            printf '%s\n' "$_steno_id"
            [ "$_steno_id" = "$2$3" ] || continue
        fi
        for _steno_nest in "$_steno_folder"*/; do
            if [ -d "$_steno_nest" ]; then
                printf '%s/\n' "$_steno_id"
                break
            fi
        done
    done
}
