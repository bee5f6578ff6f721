"""The script of shell completion, for `gearcache --completion`."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, add_completion_class, get_completion_class


@add_completion_class
class ColonBashComplete(BashComplete):
    """Bash splits words at colons, as in `deploy.py:build`: the script rejoins them, and cuts answers to match."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local response words=() word cword=0 index joined=0 type value completion

    for index in "${!COMP_WORDS[@]}"; do
        word=${COMP_WORDS[index]}
        if [[ $COMP_WORDBREAKS == *:* && $index -gt 1 && ( $word == :* || $joined == 1 ) ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        [[ $word == *: ]] && joined=1 || joined=0
        [[ $index -eq $COMP_CWORD ]] && cword=$((${#words[@]} - 1))
    done

    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$cword %(complete_var)s=bash_complete $1)

    for completion in $response; do
        IFS=',' read type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            [[ $COMP_WORDBREAKS == *:* && ${words[cword]} == *:* ]] && value=${value##*:}
            COMPREPLY+=("$value")
        fi
    done

    return 0
}

%(complete_func)s_setup() {
    complete -o nosort -F %(complete_func)s %(prog_name)s
}

%(complete_func)s_setup;
"""


def script_for(shell: str, program: click.Command) -> str:
    """Return the script that lets a shell complete commands, options, entry names, and targets of `prewarm`."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    return completion_class(program, {}, "gearcache", "_GEARCACHE_COMPLETE").source()
