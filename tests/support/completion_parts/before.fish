function _steno_session_ids
    set -l root
    set -l before
    for word in (commandline -opc)
        switch $word
            case '--root=*'
                set root (string replace -- --root= '' $word)
            case '*'
                test "$before" = --root; and set root $word
        end
        set before $word
    end
    /bin/sh -c "$_steno_sh"'_steno_sessions "$1" "$2"' sh (commandline -ct | string collect) "$root"
end

# A path where no session id begins like the word: the name of a session can also be that of a file.
function _steno_ids_or_files
    set -l found (_steno_session_ids)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
