# Names of tools and providers: ati itself knows them.
_ati() {
    local -a names
    local ati="${words[1]/#\~/$HOME}"
    names=("${(@f)$("$ati" __complete -- "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
    names=("${(@)names:#}")
    if (( $#names )); then
        compadd -- "${names[@]}"
    else
        _ati_static "$@"
    fi
}

