#compdef @NAME@
# Completion of Squall's commands in zsh.
_squall() {
  local line word about
  local -a found
  while IFS=$'\t' read -r word about; do
    found+=("${word//:/\\:}${about:+:$about}")
  done < <(squall complete "${(@)words[1,CURRENT]}" 2>/dev/null)
  if (( ${#found} )); then
    _describe 'completion' found -S ''
  else
    _files
  fi
}
_squall "$@"
