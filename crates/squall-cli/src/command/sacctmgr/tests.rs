//! Tests of sacctmgr.

use std::fmt::Write;

use serde_json::json;
use squall_model::policy::{AssocKey, Association, Counts, Policy, ROOT, Whose};
use squall_model::wire::client::Request;
use squall_text::limits::{LimitKind, ROWS, Row};
use squall_text::rest::policy::Ledger;
use squall_text::shapes::AnswerKind;
use squall_text::verbs::accounts::Draft;

use super::{dump, sacctmgr};
use crate::command::listing::fake::{Fake, check, fake, run, run_with, transcript};
use crate::command::scontrol::scontrol;

/// Runs commands one after the other in the same cluster; returns each with what it printed and its exit status.
fn answers(fake: &mut Fake, calls: &[&[&str]]) -> String {
    let mut text = String::new();
    for args in calls {
        let seen = run_with(fake, "sacctmgr", sacctmgr, args, &[]);
        let _ = write!(text, "$ sacctmgr {}\n{}{}[{}]\n", args.join(" "), seen.out, seen.err, seen.code);
    }
    text
}

/// Sets the limit of a row to a number, and checks that all that show limits show it. `add`: the record.
fn set_and_shown(whose: Whose, row: &Row, number: u64, (add, entity, list): (&str, &str, &str)) {
    let mut fake = fake();
    let (each, time) = match row.what {
        LimitKind::Each(_) => (true, false),
        LimitKind::One(limit) => (false, limit.counts() == Counts::Time),
    };
    let value = if each { format!("cpu={number}") } else { number.to_string() };
    let setting = format!("{}={value}", row.name.to_lowercase());
    let set = answers(&mut fake, &[&["-i", "add", entity, add, &setting]]);
    assert!(set.ends_with("[0]\n"), "{set}");
    let shown = if time { format!("{:02}:{:02}:00", number / 60, number % 60) } else { value.clone() };
    for column in row.columns {
        let format = format!("format={}", column.name);
        let seen = run_with(&mut fake, "sacctmgr", sacctmgr, &["-nP", "show", list, &format], &[]).out;
        let bare = shown.trim_start_matches("cpu=");
        assert!(seen.lines().any(|line| line == shown || line == bare), "{format}: {seen}");
    }
    let seen = run_with(&mut fake, "scontrol", scontrol, &["show", "assoc_mgr"], &[]).out;
    let of_cpus = format!("cpu={number}");
    let marks = [format!("={number}("), format!("={number} "), format!("={number}\n"), of_cpus];
    assert!(marks.iter().any(|mark| seen.contains(mark)), "{}: {seen}", row.name);
    let path = row.place(whose).path;
    if !path.is_empty() {
        let seen = run_with(&mut fake, "sacctmgr", sacctmgr, &["--json=v0.0.43", "show", list], &[]).out;
        let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
        let records = ["associations", "qos"].into_iter().find_map(|key| seen[key].as_array()).unwrap();
        let at = format!("/{}{}", path.replace('.', "/"), if each { "/0/count" } else { "/number" });
        assert!(records.iter().any(|one| one.pointer(&at) == Some(&json!(number))), "{at}");
    }
    if whose == Whose::Association {
        let own = &fake.policy.associations[&AssocKey::account(add)];
        let line = dump::options(own);
        let mut again = Association { parent: ROOT.to_owned(), id: own.id, ..Association::default() };
        for option in dump::split(&line).iter().filter(|option| option.starts_with(['G', 'M'])) {
            let (key, value) = option.split_once('=').unwrap();
            let setting = squall_text::verbs::setting::Setting::of(&format!("{key}={}", value.trim_matches('\'')));
            setting.change_association(&mut again).unwrap();
        }
        assert_eq!(again.limits, own.limits, "{line}");
    }
}

#[test]
fn each_limit_is_set_and_shown_everywhere() {
    for (row, number) in ROWS.iter().zip(71..) {
        for (whose, record) in
            [(Whose::Association, ("phys", "account", "assoc")), (Whose::Qos, ("normal", "qos", "qos"))]
        {
            if row.is_of(whose) {
                set_and_shown(whose, row, number, record);
            }
        }
    }
}

#[test]
fn what_clients_ask() {
    let calls: &[&[&str]] = &[
        &["-nP", "show", "users", "withassoc", "format=account,qos", "where", "user=ann", "cluster=squall"],
        &["-n", "-s", "list", "user", "ann", "format=account%12"],
        &["-n", "list", "qos", "format=name"],
        &["show", "assoc", "format=User,Account,GrpCPU,GrpMem,GrpJobs,GrpSubmit", "--noheader", "--parsable2"],
        &["list", "associations", "user=ann", "Format=Cluster,Account,User,QOS", "-P"],
        &["show", "user", "ann", "Format=DefaultAccount", "-Pn"],
        &["show", "user", "nobody-of-that-name", "-Pn"],
        &["-P", "show", "cluster", "format=Cluster,RPC"],
        &["show", "cluster", "elsewhere", "-n"],
        &["show", "runaway"],
    ];
    check("sacctmgr_calls_of_clients", &transcript("sacctmgr", sacctmgr, calls));
}

#[test]
fn tables() {
    let calls: &[&[&str]] = &[
        &["show", "user"],
        &["show", "account"],
        &["list", "tres"],
        &["show", "wckeys"],
        &["show", "federation"],
        &["-P", "show", "qos"],
        &["-p", "show", "assoc"],
    ];
    check("sacctmgr_tables", &transcript("sacctmgr", sacctmgr, calls));
}

#[test]
fn what_fails_and_how() {
    let calls: &[&[&str]] = &[
        &["bogus"],
        &["show"],
        &["show", "bogus"],
        &["show", "user", "format=bogus"],
        &["show", "user", "where", "colour=blue"],
        &["-i", "add", "account", "x", "colour=blue"],
        &["-i", "add", "user", "ann"],
        &["-i", "modify", "user", "ann"],
        &["-i", "delete", "account", "nosuch"],
        &["--bad"],
    ];
    check("sacctmgr_what_fails_and_how", &transcript("sacctmgr", sacctmgr, calls));
}

#[test]
fn what_is_changed_quietly_is_not_told() {
    let said = |options: &[&str]| {
        let mut fake = fake();
        let seen = run_with(&mut fake, "sacctmgr", sacctmgr, &[options, &["add", "account", "phys"]].concat(), &[]);
        let changed = fake.asked.iter().any(|request| matches!(request, Request::ChangePolicy { .. }));
        (seen.code, seen.out.is_empty(), changed)
    };
    assert_eq!(said(&["-i"]), (0, false, true));
    assert_eq!(said(&["-i", "--quiet"]), (0, true, true));
}

#[test]
fn what_is_set_up_and_shown() {
    let mut fake = fake();
    let calls: &[&[&str]] = &[
        &["-i", "add", "account", "phys", "description=Physics", "organization=uni", "fairshare=10"],
        &["-i", "add", "account", "optics", "parent=phys", "GrpTRES=cpu=20,mem=4G", "GrpJobs=5"],
        &["-i", "add", "account", "phys"],
        &[
            "-i",
            "add",
            "qos",
            "high",
            "priority=100",
            "MaxJobsPU=2",
            "MaxTRESPU=cpu=8",
            "MaxWall=1-0",
            "preempt=normal",
        ],
        &["-i", "add", "user", "ann", "account=optics", "defaultaccount=optics", "MaxJobs=3"],
        &["-i", "add", "user", "ann", "account=optics"],
        &["-i", "add", "user", "bob", "account=nosuch"],
        &["-i", "add", "user", "dan", "account=optics", "DefaultAccount=phys"],
        &["-i", "modify", "user", "where", "name=ann", "account=optics", "set", "qos+=high,normal", "fairshare=parent"],
        &["-i", "modify", "account", "phys", "set", "MaxSubmitJobs=9", "Description=All"],
        &["-i", "modify", "qos", "high", "set", "GraceTime=30", "PreemptMode=requeue", "MaxJobsPU=-1"],
        &["-i", "modify", "user", "nobody", "set", "fairshare=2"],
        &["-i", "modify", "user", "ann", "set", "GrpTRES=gres/gpu=1", "MaxTRESPerNode=cpu=4", "GrpTRESRunMins=cpu=90"],
        &[
            "-i",
            "modify",
            "qos",
            "high",
            "set",
            "GrpTRESMins=cpu=600,gres/gpu=60",
            "MaxCPUMins=30",
            "MaxTRESPU=gres/gpu=2",
        ],
        &["-i", "modify", "user", "ann", "set", "GrpTRES=gres/fpga=1"],
        &["-i", "modify", "qos", "high", "set", "MaxTRESRunMinsPU=cpu=1"],
        &["-i", "modify", "qos", "high", "set", "flags=denyonlimit,NoDecay"],
        &["-i", "modify", "qos", "high", "set", "flags+=OverPartQOS"],
        &["-i", "modify", "qos", "high", "set", "flags-=NoDecay,OverPartQOS"],
        &["show", "qos", "high", "-nP", "format=flags"],
        &["-i", "modify", "job", "where", "jobid=3", "set", "comment=x"],
        &["archive", "dump", "events"],
        &["archive", "bogus"],
        &["show", "assoc", "user=ann", "-P", "format=user,grptres,maxtrespernode,grptresrunmins,grpcpurunmins"],
        &["show", "qos", "high", "-P", "format=name,grptresmins,maxtresmins,maxtrespu"],
        &["-i", "add", "coordinator", "account=optics", "names=ann"],
        &["show", "assoc", "-P", "format=account,user,share,grptres,grpjobs,maxjobs,maxsubmit,qos,defaultqos,parent"],
        &["show", "account", "-P"],
        &["show", "user", "-P", "withassoc", "format=user,account,defaultaccount,coordinators,maxjobs"],
        &["show", "qos", "-P", "format=name,priority,gracetime,preempt,preemptmode,maxjobspu,maxtrespu,maxwall"],
        &["-i", "delete", "user", "ann", "account=optics"],
        &["-i", "delete", "user", "dan"],
        &["-i", "delete", "qos", "high"],
        &["-i", "delete", "account", "phys"],
        &["-i", "delete", "account", "phys"],
        &["show", "assoc", "-nP", "format=account,user"],
    ];
    check("sacctmgr_what_is_set_up", &answers(&mut fake, calls));
}

/// Names of accounts and QOS in any case, and users who lose accounts (SchedMD's `sacctmgr`, `user_functions.c`).
#[test]
fn accounts_of_any_case_and_the_last_of_a_user() {
    let mut fake = fake();
    let calls: &[&[&str]] = &[
        &["-i", "add", "account", "Wq,other"],
        &["-i", "add", "account", "WQ"],
        &["-i", "add", "user", "dan", "account=WQ,Other", "defaultaccount=wQ"],
        &["-i", "modify", "account", "wQ", "set", "fairshare=33"],
        &["-i", "modify", "user", "dan", "set", "defaultaccount=OTHER"],
        &["-i", "add", "qos", "Hi"],
        &["-i", "modify", "qos", "HI", "set", "priority=3"],
        &["show", "assoc", "-nP", "format=account,user,fairshare"],
        &["show", "user", "-nP", "format=user,defaultaccount"],
        &["-i", "delete", "user", "dan", "account=other"],
        &["-i", "delete", "user", "dan", "account=Wq"],
        &["-i", "delete", "user", "dan", "account=Wq"],
        &["-i", "delete", "user", "where", "account=other"],
        &["show", "user", "-nP", "format=user,defaultaccount"],
        &["-i", "delete", "qos", "hI"],
        &["-i", "delete", "account", "WQ"],
        &["show", "assoc", "-nP", "format=account,user"],
        &["show", "instances", "-P"],
    ];
    check("sacctmgr_any_case", &answers(&mut fake, calls));
}

#[test]
fn json_of_what_is_set_up() {
    let mut fake = fake();
    for args in [
        &["-i", "add", "account", "phys", "description=Physics", "organization=uni", "GrpTRES=cpu=20,mem=4G"][..],
        &["-i", "add", "qos", "high", "priority=100", "MaxWall=1-0", "preempt=normal", "flags=DenyOnLimit"],
        &["-i", "add", "user", "ann", "account=phys", "MaxJobs=3", "qos=normal,high"],
        &["-i", "add", "coordinator", "account=phys", "names=ann"],
    ] {
        assert_eq!(run_with(&mut fake, "sacctmgr", sacctmgr, args, &[]).code, 0, "{args:?}");
    }
    let calls = [
        &["--json", "show", "assoc", "user=ann"][..],
        &["--json", "show", "account", "phys", "withassoc"],
        &["show", "user", "ann", "--json", "-s"],
        &["show", "qos", "high", "--json"],
        &["show", "cluster", "--yaml"],
        &["show", "tres", "name=node", "--json"],
        &["show", "event", "--json"],
    ];
    check("sacctmgr_json", &answers(&mut fake, &calls));
}

#[test]
fn what_was_dumped_is_loaded_again() {
    let path = std::env::temp_dir().join(format!("squall-dump-{}", std::process::id()));
    let file = format!("file={}", path.display());
    let mut one = fake();
    for args in [
        &["-i", "add", "account", "a", "description=x y", "MaxWall=2-0"][..],
        &["-i", "add", "account", "b", "parent=a", "GrpJobs=4"],
        &[
            "-i",
            "add",
            "user",
            "ann",
            "account=b",
            "fairshare=7",
            "GrpTRESMins=gres/gpu=60,cpu=5",
            "MaxTRES=gres/gpu=1",
        ],
        &["dump", "squall", &file],
    ] {
        assert_eq!(run_with(&mut one, "sacctmgr", sacctmgr, args, &[]).code, 0, "{args:?}");
    }
    let mut other = fake();
    assert_eq!(run_with(&mut other, "sacctmgr", sacctmgr, &["-i", "load", &file], &[]).code, 0);
    drop(std::fs::remove_file(path));
    assert_eq!((&one.policy.accounts, &one.policy.users), (&other.policy.accounts, &other.policy.users));
    let plain = |fake: &Fake| {
        let all = fake.policy.associations.iter().map(|(key, own)| (key.clone(), own.limits.clone(), own.shares));
        all.collect::<Vec<_>>()
    };
    assert_eq!(plain(&one), plain(&other));
}

/// Checks faults D1 to D5, D9, and findings 2.1 and 3 of the audit: what client programs set and read.
#[test]
fn d1_to_d5_and_d9_what_programs_set_and_read() {
    let mut fake = fake();
    let root: &[&[&str]] = &[
        &["-nP", "show", "users", "withassoc", "format=account,qos", "where", "user=root"],
        &["-nP", "show", "user", "root", "format=user,defaultaccount,adminlevel"],
        &["-i", "add", "account", "a"],
        &["-i", "add", "user", "ann", "account=a"],
        &["-nP", "show", "users", "withassoc", "format=account,qos", "where", "user=root"],
        &["-i", "modify", "user", "set", "MaxJobs=5", "where", "user=root"],
        &["-i", "add", "user", "root", "account=a"],
        &["-nP", "show", "user", "root", "format=user,defaultaccount,adminlevel"],
        &["-nP", "show", "user", "root", "withassoc", "format=user,account,maxjobs"],
    ];
    let limits: &[&[&str]] = &[
        &["-i", "modify", "account", "set", "GrpTRESMins=mem=777000,cpu=5", "GrpTRES=mem=5000", "where", "name=a"],
        &["-i", "modify", "account", "a", "set", "GrpTRESRunMins=mem=2G"],
        &["-nP", "show", "assoc", "account=a", "user=", "format=account,user,grptresmins,grptres,grptresrunmins"],
        &["-i", "modify", "account", "a", "set", "MaxTRESMins=cpu=5,energy=-1,vmem=-1,billing=-1,gres/fpga=-1"],
        &["-i", "modify", "account", "a", "set", "MaxTRESMins=colour=-1"],
        &["-i", "modify", "account", "a", "set", "MaxTRESMins=energy=1"],
        &["-nP", "show", "assoc", "account=a", "user=", "format=account,user,maxtresmins"],
    ];
    let orders: &[&[&str]] = &[
        &["-i", "add", "qos", "q"],
        &["-i", "modify", "qos", "set", "priority=7", "where", "name=q"],
        &["-i", "modify", "user", "set", "qos+=q", "where", "name=ann"],
        &["-i", "modify", "account", "where", "name=a", "set", "qos+=q"],
        &["-nP", "show", "assoc", "account=a", "format=account,user,qos"],
        &["-i", "modify", "account", "set", "qos=+high,-normal", "where", "a"],
        &["-i", "modify", "cluster", "set", "GrpJobs=9", "where", "cluster=squall"],
        &["-P", "show", "cluster"],
        &["-i", "modify", "qos", "q", "set", "RawUsage=5"],
        &["-i", "modify", "qos", "q", "set", "RawUsage=0"],
        &["-r", "-i", "add", "account", "b"],
        &["--readonly", "-i", "modify", "account", "a", "set", "GrpJobs=1"],
        &["--readonly", "-i", "delete", "user", "ann"],
        &["-r", "-nP", "show", "assoc", "format=account,user,grpjobs,qos"],
    ];
    check("sacctmgr_d1_to_d5_and_d9", &answers(&mut fake, &[root, limits, orders].concat()));
    let users = fake.policy.users.keys().collect::<Vec<_>>();
    assert_eq!(users, ["ann", "root"], "root's association is sent with its user");
}

/// Checks that a dump of Slurm 22.05.8 can be loaded: `parent` as a number, units, and lists with signs.
#[test]
fn audit_a_dump_of_slurm_is_loaded() {
    let path = std::env::temp_dir().join(format!("squall-slurm-dump-{}", std::process::id()));
    let text = "Cluster - 'peer':Fairshare=1:QOS='normal'\n\
                Parent - 'root'\n\
                User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1\n\
                Account - 'acc1':Description='acc1':Organization='acc1':Fairshare=2147483647:\
                GrpTRESMins=cpu=5,mem=777000M:MaxTRESMinsPerJob=cpu=5:QOS='+q1,-normal'\n";
    std::fs::write(&path, text).unwrap();
    let mut fake = fake();
    let load = ["-i", "load", &format!("file={}", path.display())];
    let seen = run_with(&mut fake, "sacctmgr", sacctmgr, &load, &[]);
    assert!(seen.code == 1 && seen.err.contains("first: sacctmgr add qos q1"), "{}", seen.err);
    assert_eq!(run_with(&mut fake, "sacctmgr", sacctmgr, &["-i", "add", "qos", "q1"], &[]).code, 0);
    let seen = run_with(&mut fake, "sacctmgr", sacctmgr, &load, &[]);
    drop(std::fs::remove_file(path));
    assert_eq!(seen.code, 0, "{}", seen.err);
    let own = &fake.policy.associations[&AssocKey::account("acc1")];
    assert_eq!((own.shares, own.qos.join(",")), (None, "q1".to_owned()));
}

#[test]
fn all_that_is_wrong_with_a_dump_is_said_at_once() {
    let path = std::env::temp_dir().join(format!("squall-wrong-dump-{}", std::process::id()));
    let text = "Cluster - 'peer':Fairshare=1\nParent - 'root'\n\
                Account - 'a':GrpJobsAccrue=5:GrpTRES=energy=7:QOS='+fast,+slow'\nloose\n\
                Parent - 'a'\nUser - 'ann':AdminLevel='King':DefaultQOS='slow'\n";
    std::fs::write(&path, text).unwrap();
    let mut fake = fake();
    let seen = run_with(&mut fake, "sacctmgr", sacctmgr, &["-i", "load", &format!("file={}", path.display())], &[]);
    drop(std::fs::remove_file(&path));
    let said = seen.err.replace(&path.display().to_string(), "FILE");
    let expected = [
        "FILE:3: Bad value for grpjobsaccrue: GrpJobsAccrue is not taken: each pending job gains priority by its age",
        "FILE:3: Bad value for grptres: energy can't be limited here (jobs have it when they have ended): cpu, mem, node, billing and gres/gpu can",
        "FILE:4: `KIND - 'NAME':OPTION=VALUE` is needed",
        "FILE:6: Unknown admin level: King",
        "QOS that are named and do not exist: fast,slow; a dump has none, so first: sacctmgr add qos fast,slow",
        "Nothing was loaded: mend this and load the file again",
    ];
    for line in expected {
        assert!(said.contains(line), "`{line}` is not in {said}");
    }
    assert!(seen.code == 1 && fake.policy.accounts.is_empty());
}

#[test]
fn every_default_format_is_made_of_fields() {
    for entity in "acc assoc clus event fed problem qos reso rese run trans tres user wckey".split(' ') {
        assert_eq!(run("sacctmgr", sacctmgr, &["-s", "show", entity]).code, 0, "{entity}");
    }
}

/// Checks fault D9: events, transactions and statistics were empty or refused.
#[test]
fn d9_events_transactions_and_stats() {
    use squall_model::event::NodeAdmin;
    use squall_model::policy::{Account, PolicyChange};
    use squall_model::time::Time;
    use squall_model::wire::history::{Happening, HistoryRow};

    use crate::command::listing::fake::NOW;
    let mut fake = fake();
    let at = |seconds: u64| Time::from_secs(NOW - seconds);
    let set = |admin| Happening::Set { nodes: "n[1-2]".into(), admin, reason: Some("disk".into()), by: 0 };
    let account = Account { description: "d".into(), organization: "o".into(), coordinators: Vec::new() };
    let change = PolicyChange::Account("phys".into(), Some(account));
    fake.history = vec![
        HistoryRow { time: at(600), what: set(NodeAdmin::Drain) },
        HistoryRow { time: at(300), what: Happening::Changed { changes: vec![change], by: 0 } },
        HistoryRow { time: at(60), what: set(NodeAdmin::Resume) },
    ];
    let of_n7 = fake.history.clone();
    let mut seen = |args: &[&str]| run_with(&mut fake, "sacctmgr", sacctmgr, args, &[]);
    assert_eq!(
        seen(&["-nP", "show", "event", "nodes=n2"]).out,
        "squall|n2|2026-11-21T07:50:00|2026-11-21T07:59:00|DRAIN|disk|root(0)\n"
    );
    assert_eq!(seen(&["-nP", "show", "event", "event=node", "states=down"]).out, "");
    // A removed node's event ends with it; what comes from its daemon later opens no other.
    let removed = Happening::Removed { nodes: "n7".into(), by: 0 };
    let silent = Happening::Silent { node: "n7".into(), reason: "Not responding".into() };
    let drained = Happening::Set { nodes: "n7".into(), admin: NodeAdmin::Drain, reason: Some("old".into()), by: 0 };
    let mut with_n7 = of_n7;
    for (time, what) in [(500, drained), (400, removed), (390, silent.clone())] {
        with_n7.push(HistoryRow { time: at(time), what });
    }
    let mut other = self::fake();
    other.history = with_n7;
    let events = ["-nP", "show", "event", "nodes=n7"];
    let first = "squall|n7|2026-11-21T07:51:40|2026-11-21T07:53:20|DRAIN|old|root(0)\n";
    assert_eq!(run_with(&mut other, "sacctmgr", sacctmgr, &events, &[]).out, first);
    let back = Happening::Registered { node: "n7".into(), cpus: 4, memory_mb: 100 };
    other.history.push(HistoryRow { time: at(200), what: back });
    other.history.push(HistoryRow { time: at(100), what: silent });
    let second = "squall|n7|2026-11-21T07:58:20|Unknown|DOWN*|Not responding|\n";
    assert_eq!(run_with(&mut other, "sacctmgr", sacctmgr, &events, &[]).out, format!("{first}{second}"));
    assert_eq!(
        seen(&["-nP", "show", "transaction"]).out,
        "2026-11-21T07:55:00|Add Accounts|root|phys|description='d', organization='o'\n"
    );
    let stats = seen(&["show", "stats"]);
    assert!(stats.code == 0 && stats.out.contains("Remote Procedure Call statistics by message type"), "{}", stats.out);
}

/// Checks fault E: `modify job` was refused. Exit codes and texts are those of Slurm 22.05.8.
#[test]
fn e_modify_job() {
    let mut fake = fake();
    let mut seen = |args: &[&str]| run_with(&mut fake, "sacctmgr", sacctmgr, args, &[]);
    let done = seen(&["-i", "modify", "job", "where", "jobid=40", "set", "comment=hi", "DerivedExitCode=3"]);
    assert_eq!((done.code, done.out.as_str()), (0, " Modified jobs...\n  40 submitted at 2026-11-21T07:50:00\n"));
    for (words, said) in [
        (&["modify", "job", "where", "jobid=9999", "set", "comment=x"][..], "Nothing modified"),
        (&["modify", "job", "where", "jobid=40", "set", "bogus=1"], " Unknown option: bogus=1"),
        (&["modify", "job", "where", "bogus=40", "set", "comment=1"], " Unknown condition: bogus=40"),
        (&["modify", "job", "where", "jobid=40"], " You didn't give me anything to set"),
        (&["modify", "job", "set", "comment=x"], " You didn't say which jobs"),
        (&["modify", "job", "where", "jobid=40", "set", "DerivedExitCode=x"], " Bad value"),
    ] {
        let refused = seen(&[&["-i"], words].concat());
        assert!(refused.code == 1 && refused.err.contains(said), "{words:?}: {}", refused.err);
    }
    assert!(fake.asked.iter().any(|request| matches!(request, Request::Record { .. })));
}

/// Checks faults F8: an emptied list of QOS stays empty, for the accounts below it too, and a dump keeps it.
#[test]
fn f8_an_emptied_list_of_qos_is_empty() {
    let mut fake = fake();
    let mut seen = |args: &[&str]| run_with(&mut fake, "sacctmgr", sacctmgr, args, &[]).out;
    seen(&["-i", "add", "account", "phys"]);
    seen(&["-i", "add", "user", "ann", "account=phys"]);
    let levels = ["-nP", "show", "assoc", "format=account,user,qos"];
    assert_eq!(seen(&levels), "root||normal\nroot|root|normal\nphys||normal\nphys|ann|normal\n");
    let done = seen(&["-i", "modify", "cluster", "squall", "set", "qos="]);
    assert!(done.contains("Modified cluster defaults"), "{done}");
    assert_eq!(seen(&levels), "root||\nroot|root|\nphys||\nphys|ann|\n");
    assert_eq!(seen(&["-nP", "show", "cluster", "format=qos"]), "\n");
    seen(&["-i", "modify", "account", "phys", "set", "qos=normal"]);
    assert_eq!(seen(&levels), "root||\nroot|root|\nphys||normal\nphys|ann|normal\n");
    // Without its last name a list is empty; set to nothing, it is inherited again.
    seen(&["-i", "modify", "user", "ann", "set", "qos-=normal"]);
    assert_eq!(seen(&levels), "root||\nroot|root|\nphys||normal\nphys|ann|\n");
    let file = std::env::temp_dir().join(format!("squall-f8-{}", std::process::id()));
    let file = file.to_string_lossy();
    seen(&["dump", "squall", &format!("file={file}")]);
    seen(&["-i", "delete", "user", "ann"]);
    seen(&["-i", "load", &file]);
    assert_eq!(seen(&levels), "root||\nroot|root|\nphys||normal\nphys|ann|\n");
    std::fs::remove_file(&*file).unwrap();
    seen(&["-i", "modify", "user", "ann", "set", "qos="]);
    seen(&["-i", "modify", "cluster", "squall", "set", "qos=normal"]);
    assert_eq!(seen(&levels), "root||normal\nroot|root|normal\nphys||normal\nphys|ann|normal\n");
}

/// Checks faults F13: quotes around a value are not part of it.
#[test]
fn f13_quotes_are_stripped() {
    let mut fake = fake();
    let mut seen = |args: &[&str]| run_with(&mut fake, "sacctmgr", sacctmgr, args, &[]).out;
    seen(&["-i", "add", "account", "phys"]);
    for format in ["format=\"account,user\"", "format='account,user'", "format=account,user"] {
        assert_eq!(seen(&["-nP", "show", "assoc", format, "account=\"phys\""]), "phys|\n", "{format}");
    }
    assert_eq!(seen(&["-nP", "show", "account", "'phys'", "format=account"]), "phys\n");
}

/// Checks faults F15: with `PrivateData=users` a user sees the own row only, also while no user is set up.
#[test]
fn f15_hidden_users_are_not_listed() {
    let me = run("sacctmgr", sacctmgr, &["-nP", "show", "user", "format=user"]);
    assert!(me.out.lines().any(|line| line == "root"), "{}", me.out);
    let mut fake = Fake { hides_users: true, ..fake() };
    let mut seen = |args: &[&str]| run_with(&mut fake, "sacctmgr", sacctmgr, args, &[]).out;
    let own = seen(&["-nP", "show", "user", "format=user"]);
    assert_eq!(own.lines().count(), 1, "{own}");
    assert_eq!(seen(&["-nP", "show", "user", "daemon", "format=user"]), "");
    seen(&["-i", "add", "account", "phys"]);
    seen(&["-i", "add", "user", "ann", "account=phys"]);
    assert_eq!(seen(&["-nP", "show", "user", "format=user"]), "ann\n");
    assert_eq!(seen(&["-nP", "show", "assoc", "format=account,user"]), "root|\nphys|\nphys|ann\n");
}

/// Checks faults F15 and P12: other names of keys and fields.
#[test]
fn f15_aliases_of_keys_and_fields() {
    let mut fake = fake();
    let mut seen = |args: &[&str]| run_with(&mut fake, "sacctmgr", sacctmgr, args, &[]);
    for key in
        ["MaxTRESPJ=cpu=1", "MaxTRESMinsPJ=cpu=1", "MaxTRESPerAcct=cpu=1", "MaxJobsPerAcct=1", "MaxSubmitJobsPerAcct=1"]
    {
        assert_eq!(seen(&["-i", "modify", "qos", "normal", "set", key]).code, 0, "{key}");
    }
    let fields = "format=MaxTRESPJ,MaxTRESMinsPJ,MaxTRESPA,MaxJobsPA,MaxSubmitPA";
    assert_eq!(seen(&["-nP", "show", "qos", "normal", fields]).out, "cpu=1|cpu=1|cpu=1|1|1\n");
    seen(&["-i", "add", "account", "phys", "GrpTRES=cpu=20,mem=4G"]);
    let listed = seen(&["-P", "show", "assoc", "account=phys", "format=GrpCPU,GrpMem"]).out;
    assert_eq!(listed, "GrpCPUs|GrpMem\n20|4096\n");
}

/// Sets up the same by sacctmgr's arguments, by a dump and by REST bodies: the records are the same.
#[test]
fn arguments_dumps_and_bodies_enter_the_same_records() {
    let mut typed = fake();
    for args in [
        &["-i", "add", "account", "phys", "description=Physics", "organization=uni", "GrpTRES=cpu=20,mem=4096"][..],
        &["-i", "add", "account", "optics", "parent=phys", "MaxWall=90", "fairshare=7"],
        &["-i", "add", "user", "ann", "account=optics", "MaxJobs=3", "GrpTRESMins=gres/gpu=60", "AdminLevel=Operator"],
        &["-i", "add", "user", "bob", "account=optics,phys", "partition=main"],
        &["-i", "add", "coordinator", "account=phys", "names=ann"],
    ] {
        assert_eq!(run_with(&mut typed, "sacctmgr", sacctmgr, args, &[]).code, 0, "{args:?}");
    }

    let file = std::env::temp_dir().join(format!("squall-same-{}", std::process::id()));
    std::fs::write(
        &file,
        "Parent - 'root'\nAccount - 'phys':Description='Physics':Organization='uni':GrpTRES=cpu=20,mem=4096\n\
         Parent - 'phys'\nAccount - 'optics':MaxWallDurationPerJob=90:Fairshare=7\n\
         Parent - 'optics'\nUser - 'ann':MaxJobs=3:GrpTRESMins=gres/gpu=60:AdminLevel='Operator'\n\
         User - 'bob':Partition='main'\nParent - 'phys'\nUser - 'bob':Partition='main'\n",
    )
    .unwrap();
    let mut loaded = fake();
    let load = ["-i", "load", &*file.to_string_lossy()];
    assert_eq!(run_with(&mut loaded, "sacctmgr", sacctmgr, &load, &[]).code, 0);
    std::fs::remove_file(file).unwrap();
    let coordinator = ["-i", "add", "coordinator", "account=phys", "names=ann"];
    assert_eq!(run_with(&mut loaded, "sacctmgr", sacctmgr, &coordinator, &[]).code, 0);

    let mut draft = Draft::default();
    let mut ledger = Ledger::new(&mut draft, "squall");
    ledger
        .add_accounts(&json!({
            "association_condition": {"accounts": ["phys"], "association": {
                "grptres": [{"type": "cpu", "count": 20}, {"type": "mem", "count": 4096}],
            }},
            "account": {"description": "Physics", "organization": "uni"},
        }))
        .unwrap();
    let below = json!({"parent": "phys", "maxwalldurationperjob": 90, "fairshare": 7});
    ledger.add_accounts(&json!({"association_condition": {"accounts": ["optics"], "association": below}})).unwrap();
    let limits = json!({"maxjobs": 3, "grptresmins": [{"type": "gres", "name": "gpu", "count": 60}]});
    ledger
        .add_users(&json!({
            "association_condition": {"accounts": ["optics"], "users": ["ann"], "association": limits},
            "user": {"adminlevel": ["Operator"]},
        }))
        .unwrap();
    let bob = json!({"accounts": ["optics", "phys"], "users": ["bob"], "partitions": ["main"]});
    ledger.add_users(&json!({"association_condition": bob})).unwrap();
    ledger.enter(AnswerKind::Users, &json!({"users": [{"name": "ann", "coordinators": [{"name": "phys"}]}]})).unwrap();
    let nowhere = json!({"association_condition": {"accounts": ["x"], "association": {"parent": "nosuch"}}});
    let refused = ledger.add_accounts(&nowhere).unwrap_err();
    assert_eq!((refused.description.as_str(), refused.status), ("Parent account 'nosuch' doesn't exist.", 404));
    let typed_nowhere = ["-i", "add", "account", "x", "parent=nosuch"];
    let seen = run_with(&mut typed, "sacctmgr", sacctmgr, &typed_nowhere, &[]);
    assert!(seen.code == 1 && seen.err.contains(&refused.description), "{}", seen.err);

    let plain = |policy: &Policy| {
        let associations = policy.associations.iter().filter(|(key, _)| key.user != ROOT);
        let associations = associations.map(|(key, own)| (key.clone(), Association { id: 0, ..own.clone() }));
        let users = policy.users.iter().filter(|(name, _)| *name != ROOT);
        let users = users.map(|(name, user)| (name.clone(), user.clone()));
        (associations.collect::<Vec<_>>(), users.collect::<Vec<_>>(), policy.accounts.clone())
    };
    assert_eq!(plain(&typed.policy), plain(&loaded.policy));
    assert_eq!(plain(&typed.policy), plain(&draft.policy));
}
