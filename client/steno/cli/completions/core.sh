# What Tab offers after `steno`, in plain sh; it starts no program of steno's, so it is there at once.

# Candidates for the word $1 after the words that follow: one a line, some with a tab and what they
# are. <files> and <folders> stand for paths.
_steno_candidates() {
    _steno_typed=$1
    shift
    _steno_root=
    _steno_command=
    _steno_option=
    _steno_place=0
    _steno_describe ""
    for _steno_word in "$@"; do
        if [ -n "$_steno_option" ]; then
            [ "$_steno_option" = --root ] && _steno_root=$_steno_word
            _steno_option=
            continue
        fi
        case $_steno_word in
            --root=*) _steno_root=${_steno_word#--root=} ;;
            --*=*) ;;
            -?*)
                case " $_steno_valued " in
                    *" $_steno_word "*) _steno_option=$_steno_word ;;
                esac
                ;;
            *) _steno_step "$_steno_word" ;;
        esac
    done
    if [ -n "$_steno_option" ]; then
        _steno_values
    else
        case $_steno_typed in
            -*) printf '%s\n' $_steno_flags $_steno_valued ;;
            *) _steno_argument ;;
        esac
    fi
}

# Take one more word that is no option.
_steno_step() {
    if [ -n "$_steno_actions" ]; then
        _steno_command="$_steno_command${_steno_command:+ }$1"
        _steno_place=0
        _steno_describe "$_steno_command"
    else
        _steno_place=$((_steno_place + 1))
    fi
}

# What the option that was typed last may be given.
_steno_values() {
    case $_steno_option in
        --root) echo '<folders>' ;;
        --socket | --output | -o | --key-file) echo '<files>' ;;
        *) _steno_choices "$_steno_command $_steno_option" ;;
    esac
}

# What the next argument may be.
_steno_argument() {
    if [ -n "$_steno_actions" ]; then
        _steno_names "$_steno_command"
        return
    fi
    set -- $_steno_kinds
    [ "$_steno_place" -lt $# ] || return 0
    shift "$_steno_place"
    case $1 in
        session) _steno_sessions "$_steno_typed" ;;
        target)
            # A path where no session begins so; its own name may be that of a session's folder.
            _steno_found=$(_steno_sessions "$_steno_typed")
            printf '%s\n' "${_steno_found:-<files>}"
            ;;
        folder) echo '<folders>' ;;
        choice) _steno_choices "$_steno_command" ;;
    esac
}

# The mounts of the root in use, as name=folder.
_steno_mounts() {
    sed -n '/^\[mounts\]/,/^\[/s/^ *\([a-z][a-z0-9-]*\) *= *"\([^"]*\)".*/\1=\2/p' \
        "$1/config.toml" 2>/dev/null
}

# The sessions whose id begins with $1, one folder at a time as paths are completed.
_steno_sessions() {
    _steno_home=${_steno_root:-${STENO_HOME:-${XDG_STATE_HOME:-$HOME/.local/state}/steno}}
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

# The sessions of the tree $1, whose ids begin with $2, that go on with $3; `/` ends what only has
# sessions below it.
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
