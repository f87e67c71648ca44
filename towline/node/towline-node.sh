#!/bin/sh
# towline-node: what Towline does on a node, as its SSH user.
#
#   sh towline-node-<digest>.sh NONCE COMMAND JOB_KEY TASK_INDEX [ARGUMENT...]
#
# Runs under dash, bash and busybox sh. Needs flock, setsid, tar and bash, beside coreutils or busybox.
# ~/.towline/<job key>/<task index>/ holds
#   launch.lock       held by whoever launches or closes, and by a supervisor until it can be attached to
#   closed            the task is closed: no attempt starts any more
#   attempt-<n>/      setup run env   what the user wants run (each may be absent)
#                     secrets         variables that are to be in no file: gone before the attempt counts as started
#                     output          what the task hands on, "KEY=VALUE" lines that it writes itself
#                     log             what it printed; appended to by the attempt's processes themselves
#                     pid             "PID START_TIME STARTED_AT" of the supervisor; absent: nothing was ever started
#                     boot            the boot of the node in which it was started
#                     lock            held by the supervisor for as long as it lives
#                     setup.lock      held by the supervisor until setup has ended
#                     phase           setup or run
#                     stop            present: no further phase is to begin
#                     exit            "PHASE CODE STARTED_AT ENDED_AT LOG_SIZE", renamed into place
# The answer follows a line that is NONCE, since a login shell may print anything before this script is reached.

set -u
users_umask=$(umask)
umask 077

nonce=$1 command=$2 key=$3 index=$4
shift 4
task=$HOME/.towline/$key/$index
# In the environment of every process of the task. Delimited, so that task 1 is never taken for task 10; with the home
# directory, since several local nodes share one machine.
mark="$key/$index;$HOME;"

ledger() {
  begin_answer
  for each in $(attempts); do
    report "$each"
  done
}

# Nothing starts afterwards: what is being launched has its supervisor by then, and what never got one ends here.
close() {
  lock_launching
  : >"$task/closed" || fail "cannot write to $task"
  newest=$(newest_attempt)
  directory=$task/attempt-$newest
  if [ -n "$newest" ] && ! started "$directory" && [ ! -e "$directory/exit" ]; then
    phase=run started_at=- code=143
    read -r phase _ 2>/dev/null <"$directory/phase"
    [ -e "$directory/log" ] || : >"$directory/log"
    record_exit || fail "cannot write to $directory"
  fi
  remove_secrets
  exec 7>&-
}

# output ATTEMPT MOST: the first bytes of what it hands on.
output() {
  begin_answer
  [ ! -f "$task/attempt-$1/output" ] || head -c "$2" "$task/attempt-$1/output"
}

size() {
  bytes=$(wc -c 2>/dev/null <"$task/attempt-$1/log") || bytes=0
  begin_answer
  echo $((bytes))
}

case $command in
  ensure) ensure "$1" ;;
  supervise) supervise "$1" "$2" ;;
  ledger) ledger ;;
  watch) watch "$1" ;;
  follow) follow "$1" "$2" ;;
  next) next "$1" ;;
  size) size "$1" ;;
  output) output "$1" "$2" ;;
  close)
    close
    begin_answer
    ;;
  closed)
    begin_answer
    if [ -e "$task/closed" ]; then echo yes; else echo no; fi
    ;;
  stop)
    close
    end_processes "$1"
    begin_answer
    ;;
  remove)
    close
    rm -rf "$task"/attempt-* || fail "cannot remove the attempts in $task"
    begin_answer
    ;;
  *) fail "unknown command $command" ;;
esac
