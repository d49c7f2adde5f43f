//! `scontrol show assoc_mgr`: users, associations and QOS with their limits and usage.

use std::collections::BTreeMap;
use std::fmt::Write;

use squall_model::billing::Billing;
use squall_model::job::JobState;
use squall_model::policy::{AssocKey, Association, Limit, Limits, NORMAL, Policy, Qos, ROOT, Scope, Tres};
use squall_model::wire::client::{Answer, JobSelection, Request};
use squall_model::wire::info::JobsPage;
use squall_model::wire::priority_info::Share;
use squall_text::columns::records::is_timed;

use super::Manner;
use crate::command::listing::call::{Call, Fail};
use crate::command::listing::select::names;
use crate::command::sacctmgr::{TRES, with_root_if_shown};
use squall_client::unexpected;

const WHAT: &str = "slurm_load_assoc_mgr_info error";

/// Names of the records to show; an empty list: all of that kind.
struct RecordFilter {
    users: Vec<String>,
    accounts: Vec<String>,
    qos: Vec<String>,
    /// Which kinds of records to show: users, associations and QOS, in this order.
    flags: [bool; 3],
}

/// Sums over the jobs of one user, account and QOS: numbers of jobs, and resources of running ones.
#[derive(Clone, Copy, Default)]
struct Tally {
    submitted: u64,
    running: u64,
    cpus: u64,
    memory_mb: u64,
    nodes: u64,
    billing: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.submitted += other.submitted;
        self.running += other.running;
        self.cpus += other.cpus;
        self.memory_mb += other.memory_mb;
        self.nodes += other.nodes;
        self.billing += other.billing;
    }

    fn of(&self, tres: &str) -> u64 {
        match Tres::named(tres) {
            Some(Tres::Cpu) => self.cpus,
            Some(Tres::Mem) => self.memory_mb,
            Some(Tres::Node) => self.nodes,
            Some(Tres::Billing) => self.billing,
            Some(Tres::Gpu) | None => 0,
        }
    }
}

/// Data from the controller that the output is made of.
struct AssocData {
    policy: Policy,
    shares: Vec<Share>,
    /// Sums over jobs, by (account, user, QOS).
    tallies: BTreeMap<(String, String, String), Tally>,
    cluster: String,
    newline: &'static str,
}

/// Runs `scontrol show assoc_mgr`.
pub(super) fn show(call: &mut Call<'_>, manner: Manner, words: &[String]) -> Result<(), Fail> {
    let asked = asked(call, words)?;
    let policy = match call.controller.ask(&Request::Policy) {
        Ok(Answer::Policy(policy)) => with_root_if_shown(*policy),
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    let shares = match call.controller.ask(&Request::Shares) {
        Ok(Answer::Shares(shares)) => shares,
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    let page = match call.controller.jobs(JobSelection::default(), false, false) {
        Ok(page) => page,
        Err(e) => return call.failed(WHAT, &e),
    };
    let known = AssocData {
        policy,
        shares,
        tallies: tallies(&page),
        cluster: call.cluster(WHAT)?.to_string(),
        newline: if manner.oneliner { " " } else { "\n    " },
    };
    let mut text = "Current Association Manager state\n".to_owned();
    let title = |title: &str| if manner.oneliner { format!("{title}\n") } else { format!("\n{title}\n\n") };
    if asked.flags[0] {
        users(call, &mut text, &asked, &known.policy, title);
    }
    if asked.flags[1] {
        let rows = known.associations(call, &asked);
        text +=
            &title(if rows.is_empty() { "No associations currently cached in Slurm." } else { "Association Records" });
        text += &rows;
    }
    if asked.flags[2] {
        let rows = known.levels(call, &asked);
        text += &title(if rows.is_empty() { "No QOS currently cached in Slurm." } else { "QOS Records" });
        text += &rows;
    }
    call.print(&text);
    Ok(())
}

/// Parses `users=`, `accounts=`, `qos=` and `flags=`.
fn asked(call: &mut Call<'_>, words: &[String]) -> Result<RecordFilter, Fail> {
    let mut asked = RecordFilter { users: Vec::new(), accounts: Vec::new(), qos: Vec::new(), flags: [true; 3] };
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            call.say(&format!("No value given for option {word}"));
            return Err(Fail(1));
        };
        let key = key.to_ascii_lowercase();
        let is = |name: &str| !key.is_empty() && name.starts_with(&key);
        if is("accounts") {
            asked.accounts.extend(names(value));
        } else if is("users") {
            asked.users.extend(names(value));
        } else if is("qos") {
            asked.qos.extend(names(value));
        } else if is("flags") {
            asked.flags = [false; 3];
            for flag in names(value) {
                let lower = flag.to_ascii_lowercase();
                let at = ["users", "assoc", "qos"].iter().position(|name| name.starts_with(&lower));
                let Some(at) = at else {
                    call.say(&format!("invalid flag '{flag}', valid options are 'Assoc, QOS, and/or Users'"));
                    return Err(Fail(1));
                };
                asked.flags[at] = true;
            }
        } else {
            call.say(&format!("invalid option '{word}'"));
            return Err(Fail(1));
        }
    }
    Ok(asked)
}

fn admits(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|one| one == name)
}

fn users(call: &Call<'_>, text: &mut String, asked: &RecordFilter, policy: &Policy, title: impl Fn(&str) -> String) {
    let mut rows = String::new();
    for (name, user) in policy.users.iter().filter(|(name, _)| admits(&asked.users, name)) {
        let uid = call.people.uid(name).unwrap_or(u32::MAX - 1);
        let (account, level) = (&user.default_account, user.admin);
        let _ = writeln!(rows, "UserName={name}({uid}) DefAccount={account} DefWckey= AdminLevel={level:?}");
    }
    *text += &title(if rows.is_empty() { "No users currently cached in Slurm." } else { "User Records" });
    *text += &rows;
}

fn tallies(page: &JobsPage) -> BTreeMap<(String, String, String), Tally> {
    let mut tallies: BTreeMap<_, Tally> = BTreeMap::new();
    for job in &page.jobs {
        let (class, owner) = (&page.classes[job.class as usize], &page.owners[job.owner as usize]);
        let key = (class.account.clone(), owner.user.clone(), class.qos.clone());
        let runs = !matches!(job.state, JobState::Pending | JobState::Ended(_));
        let held = |amount: u64| if runs { amount } else { 0 };
        tallies.entry(key).or_default().add(&Tally {
            submitted: job.pending_tasks.as_ref().map_or(1, |tasks| tasks.len() as u64),
            running: u64::from(runs),
            cpus: held(u64::from(job.num_cpus)),
            memory_mb: held(job.memory_mb),
            nodes: held(u64::from(job.num_nodes)),
            billing: held(job.billing.map_or(u64::from(job.num_cpus), Billing::whole)),
        });
    }
    tallies
}

/// Formats a user as `NAME(ID)`, such as `ann(1000)`; empty for an account's record, which has no user.
fn named(call: &Call<'_>, user: &str) -> String {
    if user.is_empty() { String::new() } else { format!("{user}({})", call.people.uid(user).unwrap_or(u32::MAX - 1)) }
}

/// Formats a limit and its usage as `10(4)`. Without a limit: `N(4)`.
fn counted(limits: &Limits, limit: Limit, used: u64) -> String {
    limits.get(&limit).map_or_else(|| format!("N({used})"), |most| format!("{most}({used})"))
}

/// Formats a limit and its usage as `10(4)`. Without a limit: nothing.
fn perhaps(limits: &Limits, limit: Limit, used: u64) -> String {
    limits.get(&limit).map(|most| format!("{most}({used})")).unwrap_or_default()
}

fn minutes(limits: &Limits, limit: Limit) -> String {
    limits.get(&limit).map(|seconds| (seconds / 60).to_string()).unwrap_or_default()
}

/// Formats limits of resources. With usage: all resources, as `cpu=10(4),mem=N(0),...`. Without it: only those with a
/// limit, as `cpu=10`.
fn tres(limits: &Limits, scope: Scope, used: Option<&dyn Fn(&str) -> u64>) -> String {
    let seconds = if is_timed(scope) { 60 } else { 1 };
    let one = |name: &&str| {
        let kind = Tres::ALL.into_iter().find(|tres| tres.name() == *name);
        let most = kind.and_then(|tres| limits.get(&Limit::of(scope, tres))).map(|most| most / seconds);
        let shown = most.map_or_else(|| "N".to_owned(), |most| most.to_string());
        match used {
            Some(used) => Some(format!("{name}={shown}({})", used(name))),
            None => most.map(|_| format!("{name}={shown}")),
        }
    };
    TRES.iter().chain(&["gres/gpu"]).filter_map(one).collect::<Vec<_>>().join(",")
}

/// Returns the minutes of a resource that an association has used.
fn used_minutes(share: Option<&Share>, name: &str) -> u64 {
    let used = share.map_or(0.0, |share| share.raw_usage.0);
    let seconds = match Tres::named(name) {
        Some(Tres::Cpu) => share.and_then(|share| share.cpu_usage).map_or(used, |cpu| cpu.0),
        Some(Tres::Billing) => used,
        _ => 0.0,
    };
    (seconds / 60.0) as u64
}

/// Returns the minutes of a resource that an association's running jobs may still use.
fn due_minutes(share: Option<&Share>, name: &str) -> u64 {
    let [cpu, memory, nodes] = share.map_or([0; 3], |share| share.run_minutes);
    match Tres::named(name) {
        Some(Tres::Cpu) => cpu,
        Some(Tres::Mem) => memory,
        Some(Tres::Node) => nodes,
        Some(Tres::Billing) => share.and_then(|share| share.billing_minutes).unwrap_or(cpu),
        Some(Tres::Gpu) | None => 0,
    }
}

impl AssocData {
    fn tally(&self, counts: impl Fn(&(String, String, String)) -> bool) -> Tally {
        let mut sum = Tally::default();
        self.tallies.iter().filter(|(key, _)| counts(key)).for_each(|(_, tally)| sum.add(tally));
        sum
    }

    fn associations(&self, call: &Call<'_>, asked: &RecordFilter) -> String {
        let root = (AssocKey::account(ROOT), Association { id: 1, ..Association::default() });
        let first = Some(&root).filter(|_| !self.policy.associations.contains_key(&root.0));
        let all = first.into_iter().map(|(key, own)| (key, own)).chain(&self.policy.associations);
        let mut rows: Vec<(u32, String)> = all
            .filter(|(key, _)| {
                admits(&asked.accounts, &key.account) && (key.user.is_empty() || admits(&asked.users, &key.user))
            })
            .map(|(key, own)| (own.id, self.association(call, key, own)))
            .collect();
        rows.sort();
        rows.into_iter().map(|(_, row)| row).collect()
    }

    fn association(&self, call: &Call<'_>, key: &AssocKey, own: &Association) -> String {
        let Self { policy, cluster, newline: nl, .. } = self;
        let limits: Limits = policy.limits(&key.account, own).collect();
        let below =
            |account: &str| account == key.account || policy.above(account).any(|(name, _)| name == key.account);
        let tally = self.tally(|(account, user, _)| {
            if key.user.is_empty() {
                key.account == ROOT || below(account)
            } else {
                *account == key.account && *user == key.user
            }
        });
        let share = self
            .shares
            .iter()
            .find(|s| (&s.account, &s.user, &s.partition) == (&key.account, &key.user, &key.partition));
        let of = |get: fn(&Share) -> f64| share.map_or(0.0, get);
        let user = named(call, &key.user);
        let parent = policy.associations.get(&AssocKey::account(&own.parent)).map_or(1, |above| above.id);
        let parent = if own.parent.is_empty() { String::new() } else { format!("{}({parent})", own.parent) };
        let default = policy.users.get(&key.user).is_some_and(|user| user.default_account == key.account);
        let shares = own.shares.unwrap_or(u32::from(u16::MAX));
        let used = of(|s| s.raw_usage.0);
        let used_minutes = |name: &str| used_minutes(share, name);
        let due = |name: &str| due_minutes(share, name);
        let lines = [
            format!(
                "ClusterName={cluster} Account={} UserName={user} Partition={} Priority={} ID={}",
                key.account,
                key.partition,
                own.priority.unwrap_or(0),
                own.id
            ),
            format!(
                "SharesRaw/Norm/Level/Factor={shares}/{:.2}/1/{:.2}",
                of(|s| s.norm_shares.0),
                of(|s| s.fairshare.0)
            ),
            format!("UsageRaw/Norm/Efctv={used:.2}/{:.2}/{:.2}", of(|s| s.norm_usage.0), of(|s| s.effective_usage.0)),
            format!("ParentAccount={parent} DefAssoc={}", if default { "Yes" } else { "No" }),
            format!("GrpJobs={} GrpJobsAccrue=N(0)", counted(&limits, Limit::GrpJobs, tally.running)),
            format!(
                "GrpSubmitJobs={} GrpWall={}(0.00)",
                counted(&limits, Limit::GrpSubmit, tally.submitted),
                Some(minutes(&limits, Limit::GrpWall))
                    .filter(|text| !text.is_empty())
                    .unwrap_or_else(|| "N".to_owned())
            ),
            format!("GrpTRES={}", tres(&limits, Scope::Grp, Some(&|name| tally.of(name)))),
            format!("GrpTRESMins={}", tres(&limits, Scope::GrpUsed, Some(&used_minutes))),
            format!("GrpTRESRunMins={}", tres(&limits, Scope::GrpDue, Some(&due))),
            format!(
                "MaxJobs={} MaxJobsAccrue= MaxSubmitJobs={} MaxWallPJ={}",
                perhaps(&limits, Limit::MaxJobs, tally.running),
                perhaps(&limits, Limit::MaxSubmit, tally.submitted),
                minutes(&limits, Limit::MaxWall)
            ),
            format!("MaxTRESPJ={}", tres(&limits, Scope::Job, None)),
            format!("MaxTRESPN={}", tres(&limits, Scope::Node, None)),
            format!("MaxTRESMinsPJ={}", tres(&limits, Scope::JobDue, None)),
            "MinPrioThresh=".to_owned(),
        ];
        lines.join(nl) + "\n"
    }

    fn levels(&self, call: &Call<'_>, asked: &RecordFilter) -> String {
        let normal = Qos { id: 1, ..Qos::default() };
        let first = Some((NORMAL, &normal)).filter(|_| !self.policy.qos.contains_key(NORMAL));
        let mut all: Vec<(&str, &Qos)> =
            first.into_iter().chain(self.policy.qos.iter().map(|(name, qos)| (name.as_str(), qos))).collect();
        all.retain(|(name, _)| admits(&asked.qos, name));
        all.sort_by_key(|(_, qos)| qos.id);
        all.into_iter().map(|(name, qos)| self.level(call, name, qos)).collect()
    }

    fn level(&self, call: &Call<'_>, name: &str, qos: &Qos) -> String {
        let limits = &qos.limits;
        let tally = self.tally(|(_, _, level)| level == name);
        let none = |_: &str| 0;
        let mode = qos.preempt_mode.map_or_else(|| "OFF".to_owned(), |mode| format!("{mode:?}").to_uppercase());
        let wall = minutes(limits, Limit::GrpWall);
        let lines = [
            format!("QOS={name}({})", qos.id),
            "UsageRaw=0.000000".to_owned(),
            format!(
                "GrpJobs={} GrpJobsAccrue=N(0) GrpSubmitJobs={} GrpWall={}(0.00)",
                counted(limits, Limit::GrpJobs, tally.running),
                counted(limits, Limit::GrpSubmit, tally.submitted),
                if wall.is_empty() { "N" } else { &wall }
            ),
            format!("GrpTRES={}", tres(limits, Scope::Grp, Some(&|name| tally.of(name)))),
            format!("GrpTRESMins={}", tres(limits, Scope::GrpUsed, Some(&none))),
            format!("GrpTRESRunMins={}", tres(limits, Scope::GrpDue, Some(&none))),
            format!("MaxWallPJ={}", minutes(limits, Limit::MaxWall)),
            format!("MaxTRESPJ={}", tres(limits, Scope::Job, None)),
            format!("MaxTRESPN={}", tres(limits, Scope::Node, None)),
            format!("MaxTRESMinsPJ={}", tres(limits, Scope::JobDue, None)),
            "MinPrioThresh= ".to_owned(),
            format!("MinTRESPJ={}", tres(limits, Scope::Least, None)),
            format!("PreemptMode={mode}"),
            format!("Priority={}", qos.priority),
        ];
        let mut text = lines.join(self.newline);
        let each = [
            ("Account", 0, [Limit::AccountJobs, Limit::AccountSubmit], Scope::Account),
            ("User", 1, [Limit::UserJobs, Limit::UserSubmit], Scope::User),
        ];
        for (title, at, of_jobs, scope) in each {
            let used = self.each(name, at);
            let _ = write!(text, "{}{title} Limits", self.newline);
            text += &self.used(call, limits, title, used, of_jobs, scope);
        }
        text + "\n"
    }

    /// Sums the jobs of a QOS by account (`at` 0) or by user (`at` 1).
    fn each(&self, qos: &str, at: usize) -> BTreeMap<&str, Tally> {
        let mut each: BTreeMap<&str, Tally> = BTreeMap::new();
        for ((account, user, _), tally) in self.tallies.iter().filter(|((_, _, level), _)| level == qos) {
            each.entry([account.as_str(), user.as_str()][at]).or_default().add(tally);
        }
        each
    }

    fn used(
        &self,
        call: &Call<'_>,
        limits: &Limits,
        title: &str,
        used: BTreeMap<&str, Tally>,
        [jobs, submit]: [Limit; 2],
        scope: Scope,
    ) -> String {
        let one = self.newline == " ";
        if used.is_empty() {
            return format!("{}No {title}s", if one { "=" } else { "\n        " });
        }
        let nl = if one { " " } else { "\n        " };
        let letter = &title[..1];
        let mut text = if one { "=" } else { "" }.to_owned();
        for (name, tally) in used {
            let id = if scope == Scope::User {
                format!("({})", call.people.uid(name).unwrap_or(u32::MAX - 1))
            } else {
                String::new()
            };
            let (open, close) =
                if one { (format!(" {name}{id}={{"), "}") } else { (format!("\n      {name}{id}{nl}"), "") };
            let _ = write!(
                text,
                "{open}MaxJobsP{letter}={} MaxJobsAccrueP{letter}=N(0) MaxSubmitJobsP{letter}={}{nl}MaxTRESP{letter}={}{nl}\
                 MaxTRESRunMinsP{letter}={}{close}",
                counted(limits, jobs, tally.running),
                counted(limits, submit, tally.submitted),
                tres(limits, scope, Some(&|name| tally.of(name))),
                tres(limits, if scope == Scope::User { Scope::UserDue } else { Scope::AccountDue }, Some(&|_| 0)),
            );
        }
        text
    }
}
