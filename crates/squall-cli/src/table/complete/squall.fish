# Completion of Squall's commands in fish.
function __squall_complete
    set -l words (commandline -opc)
    squall complete $words (commandline -ct) 2>/dev/null
end
complete -c @NAME@ -a '(__squall_complete)'
