# Completion of Squall's commands in bash.
_squall() {
  local words word about lead
  # Bash splits words at = and :, so the words are read again from the line.
  read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
  [[ ${COMP_LINE:0:COMP_POINT} == *" " ]] && words+=("")
  word=${words[-1]}
  lead=
  [[ $word == *[=:]* ]] && lead=${word%"${word##*[=:]}"}
  COMPREPLY=()
  while IFS=$'\t' read -r word about; do
    COMPREPLY+=("${word#"$lead"}")
  done < <(squall complete "${words[@]}" 2>/dev/null)
  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o default -F _squall @NAME@
