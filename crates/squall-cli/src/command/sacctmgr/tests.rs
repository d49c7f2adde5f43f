//! Tests of sacctmgr.

use super::sacctmgr;
use crate::command::listing::fake::{check, run, transcript};

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
        &["-i", "add", "account", "x"],
        &["--bad"],
    ];
    check("sacctmgr_what_fails_and_how", &transcript("sacctmgr", sacctmgr, calls));
}

#[test]
fn every_default_format_is_made_of_fields() {
    for entity in "acc assoc clus event fed problem qos reso rese run trans tres user wckey".split(' ') {
        assert_eq!(run("sacctmgr", sacctmgr, &["-s", "show", entity]).code, 0, "{entity}");
    }
}
