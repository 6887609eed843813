# The Bash context kernel (Bash 5 or later): runs cells, keeps their state, reports what they produced.
# README.md beside this file is the protocol. One process keeps the context alive; a worker, its child, runs the cells.
#
# Whatever ends a shell ends the worker: `exit`, `set -e`, an unset variable under `set -u`, an interrupt. Its EXIT trap
# then forks a new worker, which has all variables, functions, options and descriptors of the old one, and goes on. So the
# code that runs cells is a text that traps evaluate, and no function: a function would be among the user's calls.
#
# User code shares the worker's process and can do anything to it. The only promise is that nothing it prints is taken for
# a frame.

# As an argument of -c the text has no file, so that messages of the shell name `bash` and not this file.
if [[ -z ${__sandstorm_text-} ]]; then
  __sandstorm_text=1 exec -a bash "$BASH" -c "$(<"$0")" bash
fi
unset __sandstorm_text

# Sends the messages. Those that wait go out before, in the same write.
__sandstorm_send() {
  local LC_ALL=C IFS= body header frames=
  for body in "${__sandstorm_held[@]}" "$@"; do
    printf -v header '\\x%02x\\x%02x\\x%02x\\0' $((${#body} & 255)) $((${#body} >> 8 & 255)) $((${#body} >> 16))
    body=${body//\\/\\\\}
    frames+=$header${body//%/%%}
  done
  __sandstorm_held=()
  printf "$frames" >&"$__sandstorm_out" 2>/dev/null
}

__sandstorm_fail() {
  echo "kernel: $1" >&2
  echo 70 >&"$__sandstorm_alive"
  builtin trap - EXIT
  builtin exit 70
}

# Reads the next message into `__sandstorm_message`. False when the controller has gone.
__sandstorm_receive() {
  local LC_ALL=C IFS= byte number word piece size shift
  __sandstorm_message=
  while :; do
    word=0
    for shift in 0 8 16 24; do
      # What is read up to a NUL is empty where the byte itself is a NUL.
      read -r -d '' -n 1 -u "$__sandstorm_in" byte || return 1
      printf -v number %d "'$byte"
      [[ -n $byte ]] && word=$((word | (number & 255) << shift))
    done
    size=$((word & 0x7fffffff))
    ((size <= 1 << 20 && ${#__sandstorm_message} + size <= 128 << 20)) ||
      __sandstorm_fail 'frame or message over its maximum'
    read -r -N "$size" -u "$__sandstorm_in" piece || return 1
    __sandstorm_message+=$piece
    ((word >> 31)) || return 0
  done
}

# Takes a message apart: a flat object of JSON. Texts are between quotes, what is around them is in between.
__sandstorm_parse() {
  local LC_ALL=C IFS='"' - pieces piece at=0 end key= text value
  set -f
  __sandstorm_type= __sandstorm_id=null __sandstorm_silent= __sandstorm_late=
  unset __sandstorm_code
  pieces=($__sandstorm_message)
  [[ ${pieces[0]} == *'{'* ]] || __sandstorm_fail 'message is not an object'
  while ((++at < ${#pieces[@]})); do
    # A quote behind an odd number of backslashes is part of the text.
    text=
    while piece=${pieces[at]} end=${#pieces[at]}; do
      while ((end > 0)) && [[ ${piece:end-1:1} == \\ ]]; do end=$((end - 1)); done
      (((${#piece} - end) % 2 == 1 && at + 1 < ${#pieces[@]})) || break
      text+=${piece:0:-1}'"'
      at=$((at + 1))
    done
    text+=$piece
    at=$((at + 1))
    value=${pieces[at]//[[:space:],\}]/}
    if [[ -n $key ]]; then
      case $key in
        type) __sandstorm_type=$text ;;
        id) __sandstorm_id='"'${text//'"'/'\"'}'"' ;;
        code) __sandstorm_decode "$text" ;;
      esac
      key=
      continue
    fi
    key=$text
    # A value that is no text follows at once.
    [[ $value == :?* ]] || continue
    case $key in
      id) __sandstorm_id=${value#:} ;;
      silent) [[ $value == :true ]] && __sandstorm_silent=1 ;;
      late_start) [[ $value == :true ]] && __sandstorm_late=1 ;;
    esac
    key=
  done
}

# The text of JSON as it is meant. `printf` knows the same escapes, but for that of a slash and of pairs of surrogates.
__sandstorm_decode() {
  local LC_ALL=C text=$1 high low whole
  if [[ $text == *'\/'* || $text == *'\u0000'* ]]; then
    text=${text//'\\'/$'\1'}
    text=${text//'\/'/'/'}
    text=${text//'\u0000'/}
    text=${text//$'\1'/'\\'}
  fi
  while [[ $text =~ \\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2}) || $text =~ \\u(D[89AB][0-9A-F]{2})\\u(D[C-F][0-9A-F]{2}) ]]; do
    high=$((16#${BASH_REMATCH[1]} - 0xd800)) low=$((16#${BASH_REMATCH[2]} - 0xdc00))
    printf -v whole '\\U%08x' $((0x10000 + (high << 10) + low))
    text=${text//"${BASH_REMATCH[0]}"/$whole}
  done
  LC_ALL=C.UTF-8
  printf -v __sandstorm_code %b "$text"
}

# Sends the end of the cell.
__sandstorm_end() {
  local IFS= status=$1 ended=ok
  if [[ -n $__sandstorm_interrupted ]]; then
    ended=interrupted
    __sandstorm_held+=('{"type":"error","id":'"$__sandstorm_id"',"name":"Interrupted","value":"the cell was interrupted","traceback":["Interrupted: the cell was interrupted"]}')
  elif ((status != 0)); then
    ended=error
    __sandstorm_held+=('{"type":"error","id":'"$__sandstorm_id"',"name":"ExitError","value":"exit status '"$status"'","traceback":[],"exit_code":'"$status"'}')
  fi
  __sandstorm_send '{"type":"done","id":'"$__sandstorm_id"',"status":"'$ended'","execution_count":'$__sandstorm_count'}'
}

# The worker's own EXIT trap goes on with the context, so that of the user is kept beside it.
trap() {
  local signals=() found= one
  if [[ $BASHPID != "$__sandstorm_worker" || $1 == -[lp] ]] || (($# < 2)); then
    builtin trap "$@"
    return
  fi
  [[ $1 == -- ]] && shift
  for one in "${@:2}"; do
    case ${one^^} in
      EXIT | 0) found=1 ;;
      *) signals+=("$one") ;;
    esac
  done
  if [[ -n $found ]]; then
    __sandstorm_farewell=$1
    [[ $1 == - ]] && __sandstorm_farewell=
  fi
  ((${#signals[@]} == 0)) || builtin trap "$1" "${signals[@]}"
}

__sandstorm_work='
  __sandstorm_worker=$BASHPID
  builtin trap "$__sandstorm_go_on" EXIT
  builtin trap "" INT
  while __sandstorm_receive; do
    __sandstorm_parse
    [[ $__sandstorm_type == shutdown ]] && break
    [[ $__sandstorm_type == execute && -v __sandstorm_code ]] || __sandstorm_fail "unknown message"
    unset __sandstorm_message
    [[ -n $__sandstorm_silent ]] || __sandstorm_count=$((__sandstorm_count + 1))
    __sandstorm_interrupted= __sandstorm_running=1
    builtin trap "$__sandstorm_interrupt" INT
    __sandstorm_held=("{\"type\":\"start\",\"id\":$__sandstorm_id,\"execution_count\":$__sandstorm_count}")
    [[ -n $__sandstorm_late ]] || __sandstorm_send
    # Traces of a user who wants them are of the cell alone.
    eval "$__sandstorm_trace$__sandstorm_code"
    {
      __sandstorm_status=$? __sandstorm_running= __sandstorm_trace=
      [[ $- == *x* ]] && __sandstorm_trace="set -x;"
      set +x
    } 2>/dev/null
    builtin trap "" INT
    __sandstorm_end "$__sandstorm_status"
  done
  builtin trap - EXIT
  eval "$__sandstorm_farewell"
  echo 0 >&"$__sandstorm_alive"'

__sandstorm_interrupt='
  if [[ -n $__sandstorm_running && $BASHPID == "$__sandstorm_worker" ]]; then
    __sandstorm_interrupted=1
    builtin exit 130
  fi'

# A shell that ends in a function is still in it. The first shell that is forked here ends outside of all functions.
__sandstorm_go_on='
  {
    __sandstorm_status=$? __sandstorm_running= __sandstorm_options=$- __sandstorm_trace=
    [[ $- == *x* ]] && __sandstorm_trace="set -x;"
    set +eumx
  } 2>/dev/null
  builtin trap "" INT
  eval "$__sandstorm_farewell"
  __sandstorm_farewell=
  (
    builtin trap "$__sandstorm_anew" EXIT
    set -e
    eval false
  ) <&"$__sandstorm_stdin" &'

__sandstorm_anew='
  set +e
  (
    __sandstorm_end "$__sandstorm_status"
    [[ $__sandstorm_options == *u* ]] && set -u
    [[ $__sandstorm_options == *e* ]] && set -e
    eval "$__sandstorm_work"
  ) <&"$__sandstorm_stdin" &'

if [[ -n ${SANDSTORM_KERNEL_NONCE-} ]]; then
  echo 'the kernel of Bash needs a descriptor of its own' >&2
  exit 2
fi
__sandstorm_descriptors=("${SANDSTORM_KERNEL_IN-${SANDSTORM_KERNEL_FD-}}" "${SANDSTORM_KERNEL_OUT-${SANDSTORM_KERNEL_FD-}}")
if [[ ! "${__sandstorm_descriptors[*]}" =~ ^[0-9]+\ [0-9]+$ ]]; then
  echo 'this is the kernel of a context: it needs SANDSTORM_KERNEL_FD, or SANDSTORM_KERNEL_IN and _OUT' >&2
  exit 2
fi
unset SANDSTORM_KERNEL_FD SANDSTORM_KERNEL_IN SANDSTORM_KERNEL_OUT
# Away from the numbers that programs use by habit.
exec {__sandstorm_in}<&"${__sandstorm_descriptors[0]}" {__sandstorm_out}>&"${__sandstorm_descriptors[1]}"
eval "exec ${__sandstorm_descriptors[0]}<&- ${__sandstorm_descriptors[1]}<&-"
unset __sandstorm_descriptors
exec {__sandstorm_stdin}<&0 {__sandstorm_stdout}>&1
__sandstorm_held=() __sandstorm_count=0 __sandstorm_farewell= __sandstorm_trace=
shopt -s expand_aliases

# The worker's end of this pipe closes with the last worker, and the last one says with which status the context ends.
exec {__sandstorm_last}< <(
  exec {__sandstorm_alive}>&1 1>&"$__sandstorm_stdout" {__sandstorm_stdout}>&- <&"$__sandstorm_stdin"
  __sandstorm_send '{"type":"ready","protocol":1,"language":"bash","version":"'"${BASH_VERSION%%[^0-9.]*}"'"}'
  eval "$__sandstorm_work"
)
builtin trap '' INT
exec {__sandstorm_in}<&- {__sandstorm_out}>&-
__sandstorm_code=1
read -r -u "$__sandstorm_last" __sandstorm_code
exit "$__sandstorm_code"
