//! `sacctmgr`: shows and changes accounts, users, associations and QOS.

use squall_model::event::Event;
use squall_model::limits::{POLICY_CHANGES_MAX, STRING_BYTES_MAX};
use squall_model::policy::{
    AdminLevel, AssocKey, Association, Limit, NORMAL, Policy, PolicyChange, PreemptMode, ROOT, Scope, Tres,
};
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, Refusal};
use squall_sched::Gate;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::rights::{Deed, can};
use crate::control::index::privacy::{Sight, coordinates};
use crate::control::port::{Out, Who};
use crate::control::state::State;

/// Returns all accounts and limits that the caller may see. The user root is among the users, unless it is hidden.
pub(crate) fn policy(c: &Controller, ask: &Ask<'_>) -> Answer {
    let mut policy = c.state.policy.clone();
    policy.name_root();
    Sight::of(&c.state, ask.who).screen(&mut policy);
    Answer::Policy(Box::new(policy))
}

/// Applies changes, if the version is the one that they were made for and the result is consistent.
pub(crate) fn change_policy(
    c: &mut Controller,
    ask: &Ask<'_>,
    version: u64,
    changes: Vec<PolicyChange>,
    out: &mut Out,
) -> Reply {
    if c.state.policy.version != version {
        return Err(Refusal::Stale);
    }
    if changes.len() > POLICY_CHANGES_MAX {
        return Err(Refusal::TooLarge("list of changes".into(), POLICY_CHANGES_MAX as u64));
    }
    let mut after = c.state.policy.clone();
    for change in &changes {
        may(&c.state.policy, ask.who, change)?;
        named(change)?;
        unused(&c.state, change)?;
        readable(&c.state, change)?;
        after.change(change);
    }
    consistent(&after)?;
    for change in &changes {
        default_is_usable(&after, change)?;
    }
    if c.disk_full {
        return Err(Refusal::DiskFull);
    }
    c.commit(ask.now, Event::PolicyChanged { changes, by: ask.who.owner.uid }, out);
    Ok(Some(Answer::Done))
}

/// Refuses what controllers of an older release can't read.
fn readable(state: &State, change: &PolicyChange) -> Result<(), Refusal> {
    let limits = match change {
        PolicyChange::Qos(_, Some(qos)) => &qos.limits,
        PolicyChange::Association(_, Some(own)) => &own.limits,
        _ => return Ok(()),
    };
    let on_billing = |limit: &Limit| limit.tres() == Some(Tres::Billing);
    if state.cluster_version < ClusterVersion::BILLING && limits.keys().any(on_billing) {
        return Err(Refusal::NotSupported("limits on billing before `scontrol upgrade`".into()));
    }
    let PolicyChange::Qos(_, Some(qos)) = change else { return Ok(()) };
    if qos.preempt_mode == Some(PreemptMode::Checkpoint) && state.cluster_version < ClusterVersion::CHECKPOINTS {
        return Err(Refusal::NotSupported("PreemptMode=checkpoint before `scontrol upgrade`".into()));
    }
    let newer = |limit: &Limit| matches!(limit.scope(), Scope::UserDue | Scope::AccountDue);
    if state.cluster_version < ClusterVersion::NODES_REPLACED && qos.limits.keys().any(newer) {
        let what = "MaxTRESRunMinsPerUser and MaxTRESRunMinsPerAccount before `scontrol upgrade`";
        return Err(Refusal::NotSupported(what.into()));
    }
    Ok(())
}

/// Checks the right to make a change. Root and Administrators may change everything. Operators may change everything
/// but administrator levels and the records of Administrators. Coordinators may change other users of their accounts.
fn may(policy: &Policy, who: &Who, change: &PolicyChange) -> Result<(), Refusal> {
    let name = &who.owner.user;
    let level = |name: &str| policy.users.get(name).map_or(AdminLevel::None, |user| user.admin);
    let own = level(name);
    if can(who, Deed::Operate) || own == AdminLevel::Administrator {
        return Ok(());
    }
    let allowed = match change {
        PolicyChange::User(user, value) => {
            let (before, after) = (level(user), value.as_ref().map_or(AdminLevel::None, |value| value.admin));
            let keeps_levels = before == after && before != AdminLevel::Administrator;
            let invites = |account: &str| !policy.users.contains_key(user) && coordinates(policy, name, account);
            // A coordinator may add a new user to an account of theirs.
            let brings = value.as_ref().is_some_and(|value| invites(&value.default_account));
            keeps_levels && (own == AdminLevel::Operator || brings)
        }
        _ if own == AdminLevel::Operator => true,
        PolicyChange::Association(key, value) => {
            let mine = key.user.is_empty() || *name == key.user;
            !mine && coordinates(policy, name, &key.account) && keeps_qos(policy, key, value.as_ref())
        }
        PolicyChange::Account(..) | PolicyChange::Qos(..) | PolicyChange::Forget(_) | PolicyChange::ForgetQos(_) => {
            false
        }
    };
    if allowed { Ok(()) } else { Err(Refusal::AccessDenied) }
}

/// Returns whether a change of an association leaves its QOS and its priority as they are. Its default may become any
/// QOS that it may use already.
fn keeps_qos(policy: &Policy, key: &AssocKey, value: Option<&Association>) -> bool {
    let Some(value) = value else { return true };
    let unset = Association::default();
    let before = policy.associations.get(key).unwrap_or(&unset);
    let usable = || policy.allowed_qos(&key.account, before).contains(&value.default_qos.as_str());
    value.qos == before.qos
        && value.no_qos == before.no_qos
        && value.priority == before.priority
        && (value.default_qos.is_empty() || value.default_qos == before.default_qos || usable())
}

/// Checks that the names of accounts, users and QOS in a change are valid: neither empty nor too long, without control
/// characters and separators.
fn named(change: &PolicyChange) -> Result<(), Refusal> {
    let names: Vec<&str> = match change {
        PolicyChange::Account(name, _)
        | PolicyChange::User(name, _)
        | PolicyChange::Qos(name, _)
        | PolicyChange::ForgetQos(name) => vec![name],
        PolicyChange::Association(key, _) | PolicyChange::Forget(key) => vec![&key.account],
    };
    let bad = |name: &&str| {
        name.is_empty() || name.len() > STRING_BYTES_MAX || name.contains(|c: char| c.is_control() || ",|=".contains(c))
    };
    match names.into_iter().find(bad) {
        Some(name) => Err(Refusal::Contradiction(name.to_owned(), "it is no name".into())),
        None => Ok(()),
    }
}

/// Refuses to delete an association or QOS under which jobs are pending or running.
fn unused(state: &State, change: &PolicyChange) -> Result<(), Refusal> {
    let gate = match change {
        PolicyChange::Association(key, None) => state.policy.associations.get(key).map(|a| Gate::Association(a.id)),
        PolicyChange::Qos(name, None) => state.policy.qos.get(name).map(|qos| Gate::Qos(qos.id)),
        _ => None,
    };
    let submitted = gate.and_then(|gate| state.index.tallies.by_gate.get(&gate)).map_or(0, |tally| tally.submitted);
    if submitted > 0 { Err(Refusal::WrongState("Job(s) active, cancel job(s) before remove".into())) } else { Ok(()) }
}

/// Checks that the accounts, users and QOS that associations and QOS name exist, and that accounts form a tree below
/// `root`.
fn consistent(policy: &Policy) -> Result<(), Refusal> {
    let no = |what: &str, why: &str| Err(Refusal::Contradiction(what.to_owned(), why.to_owned()));
    let known_qos = |qos: &String| qos == NORMAL || policy.qos.contains_key(qos);
    for (key, own) in &policy.associations {
        let AssocKey { account, user, .. } = key;
        if account != ROOT && !policy.accounts.contains_key(account) {
            return no(account, "there is no such account");
        }
        if !user.is_empty() && !policy.users.contains_key(user) {
            return no(user, "there is no such user");
        }
        if !user.is_empty() && account != ROOT && !policy.associations.contains_key(&AssocKey::account(account)) {
            return no(account, "the account has no association");
        }
        if let Some(qos) =
            own.qos.iter().chain(Some(&own.default_qos).filter(|q| !q.is_empty())).find(|q| !known_qos(q))
        {
            return no(qos, "there is no such QOS");
        }
        if user.is_empty() && account != ROOT && !leads_to_root(policy, account, own) {
            return no(account, "the accounts above it do not lead to root");
        }
    }
    let unknown = policy.qos.values().flat_map(|qos| &qos.preempt).find(|q| !known_qos(q));
    unknown.map_or(Ok(()), |qos| no(qos, "there is no such QOS"))
}

/// Checks that a default QOS is one of those that the association may use.
fn default_is_usable(policy: &Policy, change: &PolicyChange) -> Result<(), Refusal> {
    let PolicyChange::Association(key, Some(_)) = change else { return Ok(()) };
    let Some(own) = policy.associations.get(key).filter(|own| !own.default_qos.is_empty()) else { return Ok(()) };
    if policy.allowed_qos(&key.account, own).contains(&own.default_qos.as_str()) {
        return Ok(());
    }
    let problem = "These associations don't have access to their default qos. Give them access first";
    Err(Refusal::Contradiction(own.default_qos.clone(), problem.into()))
}

fn leads_to_root(policy: &Policy, account: &str, own: &Association) -> bool {
    let top = policy.above(account).last().map_or(own, |(_, top)| top);
    // The root account itself need not be defined.
    top.parent == ROOT || (top.parent.is_empty() && policy.above(account).any(|(name, _)| name == ROOT))
}
