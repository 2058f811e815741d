
# Names of tools and providers: ati itself knows them.
_ati_names() {
    local line="${COMP_LINE:0:COMP_POINT}" typed name
    local -a words
    # COMP_WORDS won't do: bash ends a word at each colon, and names of tools have one.
    read -r -a words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    typed="${words[${#words[@]}-1]}"
    COMPREPLY=()
    while IFS= read -r name; do
        # Only what comes after the last colon is replaced.
        [[ "$COMP_WORDBREAKS" == *:* ]] && name="${name#"${typed%"${typed##*:}"}"}"
        COMPREPLY+=("$name")
    done < <("${1/#\~/$HOME}" __complete -- "${words[@]:1}" 2>/dev/null)
    (( ${#COMPREPLY[@]} )) || _ati "$@"
}
complete -F _ati_names -o bashdefault -o default ati
