//! scontrol: shows and changes jobs, nodes and partitions.

mod arguments;
mod assoc_mgr;
mod change_partition;
mod checkpoint;
mod config;
mod control;
mod controllers;
mod daemons;
mod job;
pub(crate) mod license;
mod members;
mod node;
pub(crate) mod partition;
mod power;
mod process;
mod reboot;
pub(crate) mod reservation;
mod resize;
mod rotate;
mod show;
mod token;
mod topology;
mod update;
mod update_job;
mod update_node;
mod update_step;
mod upgrade;

#[cfg(test)]
mod every_key;
#[cfg(test)]
mod tests;

pub(crate) use process::here;

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::BufRead;
use std::process::ExitCode;

use squall_model::wire::client::{Answer, HostRequest, Request};

use crate::command::listing::call::{Call, FROM_STANDBY, Fail, live};
use crate::command::listing::lists::shows_hidden;
use crate::command::listing::structured::dialect;
use squall_text::format::harmless;
use squall_text::format::words;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{Options, Page};
use squall_text::shapes::Dialect;
use squall_text::verbs::key::means;

const OPTIONS: &[Flag] = &[
    flag("all", 'a', Arg::None, "show hidden partitions, and their jobs, too"),
    flag("cluster", 'M', Arg::Needed("names"), "only the cluster here is known"),
    flag("clusters", 'M', Arg::Needed("names"), ""),
    flag("details", 'd', Arg::None, "show more of jobs and steps"),
    flag("federation", '\0', Arg::None, "").hint("no federation exists"),
    FROM_STANDBY,
    flag("future", 'F', Arg::None, "show nodes in state FUTURE as well, which did not join yet"),
    flag("hide", '\0', Arg::None, "don't show hidden partitions and their jobs, which is the default"),
    flag("json", '\0', Arg::Maybe("data_parser"), "produce JSON output of show job, node, partition, ..."),
    flag("local", '\0', Arg::None, "").hint("only this cluster is known"),
    flag("oneliner", 'o', Arg::None, "one line for each record"),
    flag("quiet", 'Q', Arg::None, "no messages about what was done"),
    flag("sibling", '\0', Arg::None, "").hint("no federation exists"),
    flag("to-disk", '\0', Arg::None, "with suspend: jobs leave their nodes, and are held"),
    flag("uid", 'u', Arg::Needed("value"), "")
        .refused("what is asked is asked by the user of scontrol: use sudo -u USER scontrol ..."),
    flag("verbose", 'v', Arg::None, "say more"),
    flag("yaml", '\0', Arg::Maybe("data_parser"), "produce YAML output of show job, node, partition, ..."),
    flag("help", 'h', Arg::None, "show this help"),
];

/// What `scontrol` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "scontrol",
    about: "show and change jobs, nodes and partitions",
    synopsis: &["[OPTIONS] [<COMMAND>]"],
    options: Options::Own(OPTIONS),
    notes: "\
Valid <COMMAND> values are:
   checkpoint able|create|vacate|restart <job_id>
                            say whether a job can be checkpointed, make a checkpoint, make one and
                            put the job back into the queue, or go on from the last one.
   create nodename=<NODES> <SPECIFICATIONS>
                            create nodes that the configuration does not name; they may
                            join at any time. With State=FUTURE none waits for them.
   create partition <SPECIFICATIONS>
                            make a partition; it stays until \"reconfigure\".
   create reservation <SPECIFICATIONS>
                            keep nodes for some users for some time.
   delete nodename=<NODES>  remove nodes that the configuration does not name; their jobs
                            run to their end.
   delete PartitionName=<NAME>
                            delete a partition that no job uses.
   delete ReservationName=<NAME>
                            delete a reservation that no running job uses.
   hold <job_list>          prevent specified jobs from starting.
   uhold <job_list>         place user hold on specified jobs.
   release <job_list>       permit specified jobs to start.
   replace <job_id> <node>  have another node take the place of a drained or failing one in a
                            running job.
   requeue <job_list>       re-queue batch jobs.
   requeuehold <job_list>   re-queue and hold batch jobs.
   token [lifespan=<SECONDS>|infinite] [username=<NAME>]
                            print a token for the HTTP interface (30 minutes).
   token revoke [username=<NAME>]
                            make all tokens invalid that the user has so far.
   suspend [--to-disk] <job_list>
                            suspend specified jobs; with --to-disk they leave their nodes, and
                            are held until \"checkpoint restart\".
   resume <job_list>        resume previously suspended jobs.
   listpids [<job_id>[.<step>]] [<node>]
                            list the processes of jobs on this machine.
   notify <job_id> <message>
                            send a message to the user of a job, into its standard error.
   pidinfo <pid>            say to which job a process of this machine belongs.
   ping                     print status of the controllers.
   reboot [ASAP] [nextstate=<DOWN|DRAIN|RESUME>] [reason=<TEXT>] <NODES|ALL>
                            reboot nodes when no job is on them; with ASAP no further job starts there.
   cancel_reboot <NODES|ALL>
                            cancel reboots that were not ordered yet.
   power up|down|down_asap|down_force <NODES|ALL> [reason=<TEXT>]
                            power nodes up or down: down when no job is there, with asap no further
                            job starts there before, with force their jobs are ended.
   reconfigure              re-read the configuration file.
   show <ENTITY> [<ID>]     display state of identified entity, default is all records.
   shutdown                 shutdown the controller and the node daemons; running jobs go on.
   takeover [<INDEX>|<NAME>]
                            let another controller lead: the one of this machine, or
                            the one with that name or place in [[controllers]].
   rotate keys [grace=<TIME>]
                            make new keys for the controllers, while everything runs. Machines that
                            were not connected learn them when they call within this time (7-0: a week).
   upgrade [<VERSION>]      raise the version of the cluster, when all controllers and nodes
                            have the new release: it then uses what older ones lack.
   top <job_list>           put jobs before all others of their user that wait in the same place.
   update <SPECIFICATIONS>  update job, node, partition or reservation.
   completing               display jobs that are completing.
   wait_job <job_id>        wait until the job runs.
   version                  display tool version number.
   write batch_script <job_id> <optional_filename|->
                            write the batch script of a job to a file or to stdout.
   write config <optional_filename>
                            write the configuration, with what was made of partitions meanwhile.

<ENTITY> may be \"assoc_mgr\", \"config\", \"controllers\", \"daemons\", \"hostlist\", \"hostlistsorted\", \"hostnames\", \"job\",
     \"node\", \"partition\", \"reservation\", \"step\".
<job_list> may be comma or space separated ids, or jobname=NAME.
<SPECIFICATIONS> are keyword=value pairs as \"scontrol show\" prints them.
",
};

/// Options of scontrol that affect the output.
#[derive(Clone, Copy, Debug, Default)]
struct Manner {
    oneliner: bool,
    details: bool,
    quiet: bool,
    verbose: bool,
    future: bool,
    /// Hidden partitions and their jobs are shown, too.
    all: bool,
    to_disk: bool,
    dialect: Option<Dialect>,
}

/// Runs scontrol.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("scontrol", args, scontrol)
}

/// Runs scontrol with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn scontrol(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    if given.has("") {
        call.print(&PAGE.help());
        return Ok(());
    }
    call.check_cluster(given.last("clusters").or(given.last("cluster")), false, "slurm_load_jobs error")?;
    let manner = manner(call, &given)?;
    if given.operands.is_empty() {
        return converse(call, manner);
    }
    command(call, manner, &given.operands)
}

fn manner(call: &mut Call<'_>, given: &Arguments) -> Result<Manner, Fail> {
    Ok(Manner {
        oneliner: given.has("oneliner"),
        details: given.has("details"),
        quiet: given.has("quiet"),
        verbose: given.has("verbose"),
        future: given.has("future"),
        all: shows_hidden(call, given, "SCONTROL_ALL"),
        to_disk: given.has("to-disk"),
        dialect: dialect(call, given)?,
    })
}

/// Reads commands from standard input and runs them, until its end.
fn converse(call: &mut Call<'_>, mut manner: Manner) -> Result<(), Fail> {
    let mut result = Ok(());
    let mut last = Vec::new();
    loop {
        call.print("scontrol: ");
        let mut line = String::new();
        match std::io::stdin().lock().read_line(&mut line) {
            Ok(0) | Err(_) => return result,
            Ok(_) => {}
        }
        let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        if words == ["!!"] {
            words.clone_from(&last);
        }
        match words.first().map(String::as_str) {
            None => {}
            Some("exit" | "quit" | "q") => return result,
            Some("oneliner") => manner.oneliner = true,
            Some("details") => manner.details = true,
            Some("quiet") => manner.quiet = true,
            Some(_) => result = command(call, manner, &words),
        }
        last = words;
    }
}

/// Runs a command of scontrol with its arguments. An abbreviation means the first command that it fits, in Slurm's
/// order.
fn command(call: &mut Call<'_>, manner: Manner, words: &[String]) -> Result<(), Fail> {
    let [word, rest @ ..] = words else { return Ok(()) };
    let is = |name, least| means(word, name, least);
    if is("show", 3) {
        show::show(call, manner, rest)
    } else if is("checkpoint", 2) {
        checkpoint::checkpoint(call, rest)
    } else if is("create", 1) {
        create(call, rest)
    } else if is("delete", 3) {
        delete(call, rest)
    } else if is("update", 1) {
        update::update(call, rest)
    } else if is("requeue", 3) || is("requeuehold", 8) {
        control::requeue(call, manner, rest, !is("requeue", 3))
    } else if is("hold", 4) || is("uhold", 5) || is("holdu", 5) {
        control::hold(call, manner, rest, !is("hold", 4))
    } else if is("replace", 3) {
        reboot::replace(call, rest)
    } else if is("release", 3) {
        control::release(call, manner, rest)
    } else if is("suspend", 2) {
        control::suspend(call, manner, rest, true)
    } else if is("resume", 3) {
        control::suspend(call, manner, rest, false)
    } else if is("pidinfo", 3) {
        process::of_process(call, rest)
    } else if is("ping", 3) {
        controllers::ping(call, manner, rest)
    } else if is("takeover", 8) {
        controllers::take_over(call, rest)
    } else if is("rotate", 3) {
        rotate::run(call, rest)
    } else if is("upgrade", 3) {
        upgrade::run(call, rest)
    } else if is("reconfigure", 3) {
        control::simple(call, &Request::Reconfigure { config: None }, "slurm_reconfigure error")
    } else if is("shutdown", 8) {
        control::simple(call, &Request::ShutDown { keep_jobs: true }, "slurm_shutdown error")
    } else if is("write", 5) {
        control::write(call, rest)
    } else if is("completing", 3) {
        job::completing(call)
    } else if is("wait_job", 4) {
        control::wait_job(call, rest)
    } else if is("listjobs", 5) || is("liststeps", 5) {
        process::jobs(call, is("liststeps", 5));
        Ok(())
    } else if is("listpids", 5) {
        process::list(call, rest)
    } else if is("notify", 1) {
        process::notify(call, rest)
    } else if is("top", 3) {
        control::top(call, manner, rest)
    } else if is("token", 3) {
        token::run(call, rest)
    } else if is("version", 4) {
        call.print(&format!("slurm {}\n", words::slurm_version()));
        Ok(())
    } else if is("help", 2) {
        call.print(&PAGE.help());
        Ok(())
    } else if ["all", "details", "hide", "oneliner", "quiet", "verbose"].iter().any(|name| is(name, 2)) {
        Ok(())
    } else if let Some(result) = daemons::run(call, word, rest) {
        result
    } else {
        call.say(&format!("invalid keyword: {word}"));
        Err(Fail(1))
    }
}

/// Runs `create node|partition|reservation …`.
fn create(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let Some(first) = words.first() else {
        call.say("too few arguments for create keyword");
        return Err(Fail(1));
    };
    if change_partition::is_meant(words) {
        change_partition::create(call, words)
    } else if members::is_meant(words) {
        members::create(call, words)
    } else if first.contains('=') || reservation::is_entity(first) {
        reservation::create(call, words)
    } else {
        call.fail(&format!("Invalid creation entity: {first}"))
    }
}

/// Runs `delete ENTITY=ID` or `delete ENTITY ID`.
fn delete(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let Some(first) = words.first() else {
        call.say("too few arguments for delete keyword");
        return Err(Fail(1));
    };
    if words.len() < 2 && !first.contains('=') {
        return call.fail("Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'");
    }
    if change_partition::is_meant(words) {
        change_partition::delete(call, words)
    } else if members::is_meant(words) {
        members::delete(call, words)
    } else {
        reservation::delete(call, words)
    }
}

/// Sends a request that is answered by `Done` or a refusal. `what` begins the error message.
fn ask_done(call: &mut Call<'_>, request: &Request, what: &str) -> Result<(), Fail> {
    let answer = call.controller.ask(request);
    done(call, answer, what)
}

/// Does the same for a request that the controller's daemon answers.
fn host_done(call: &mut Call<'_>, request: &HostRequest, what: &str) -> Result<(), Fail> {
    let answer = call.controller.ask_host(request);
    done(call, answer, what)
}

fn done(call: &mut Call<'_>, answer: Result<Answer, squall_client::ClientError>, what: &str) -> Result<(), Fail> {
    match answer {
        Ok(Answer::Done) => Ok(()),
        Ok(_) => call.failed(what, &squall_client::unexpected()),
        Err(e) => call.failed(what, &e),
    }
}

/// Prints the current time and the number of records, for `-v`.
fn count(call: &mut Call<'_>, manner: Manner, records: usize) {
    if manner.verbose && manner.dialect.is_none() {
        let at = call.clock(call.now).show(call.now);
        call.print(&format!("last_update_time={at}, records={records}\n"));
    }
}

/// Formats a record as `show` prints it: the first line at the margin, the others indented, then a blank line. With
/// `oneliner` all are on one line.
fn record(oneliner: bool, lines: &[String]) -> String {
    let between = if oneliner { " " } else { "\n   " };
    let lines: Vec<Cow<'_, str>> = lines.iter().map(|line| harmless(line)).collect();
    let mut text = lines.join(between);
    text.push_str(if oneliner { "\n" } else { "\n\n" });
    text
}
