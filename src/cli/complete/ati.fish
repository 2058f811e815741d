
# Names of tools and providers: ati itself knows them.
function __fish_ati_names
    ati __complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null
end
complete -c ati -n "__fish_seen_subcommand_from run info remove unload" -f -a "(__fish_ati_names)"
complete -c ati -n "__fish_seen_subcommand_from list" -l provider -x -a "(__fish_ati_names)"
