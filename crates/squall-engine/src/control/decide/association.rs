//! Account and QOS of a job: defaults, and whether its user may use them.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::config::PartitionConfig;
use squall_model::job::{JobSpec, Owner};
use squall_model::policy::ROOT;
use squall_model::wire::client::Refusal;

use crate::control::index::limits;
use crate::control::state::State;
use crate::control::state::gates;
use crate::control::state::job::Queue;

/// Fills in the account and QOS of a job that names none, and refuses those that its user may not use. Users with
/// associations run jobs only under these. Other users run jobs without an association, unless the configuration
/// enforces associations.
pub(crate) fn fill_defaults(state: &State, owner: &Owner, spec: &mut Arc<JobSpec>) -> Result<(), Refusal> {
    let (policy, enforce) = (&state.policy, state.config.accounting_storage_enforce);
    if let Some(account) = as_set_up(spec.account.as_ref(), &policy.accounts) {
        Arc::make_mut(spec).account = Some(account);
    }
    if let Some(qos) = as_set_up(spec.qos.as_ref(), &policy.qos) {
        Arc::make_mut(spec).qos = Some(qos);
    }
    if spec.qos.as_deref().is_some_and(|qos| !limits::knows_qos(state, qos)) {
        return Err(Refusal::InvalidQos(spec.qos.clone().unwrap_or_default()));
    }
    if enforce.none || (policy.is_empty() && !enforce.associations) {
        return Ok(());
    }
    let user = policy.users.get(&owner.user);
    let default = user.map(|user| user.default_account.clone()).filter(|account| !account.is_empty());
    let asked = spec.account.is_some();
    if !asked && default.is_some() {
        Arc::make_mut(spec).account = default;
    }
    let account = gates::account_of(state, spec).to_owned();
    let partition = gates::first_partition(state, spec);
    let Some(own) = policy.association(&account, &owner.user, partition) else {
        let is_root = owner.uid == 0 && account == ROOT;
        let strange =
            asked && !policy.accounts.is_empty() && account != ROOT && !policy.accounts.contains_key(&account);
        if !is_root && (enforce.associations || user.is_some() || strange) {
            return Err(Refusal::InvalidAccount(account));
        }
        return Ok(());
    };
    let allowed = policy.allowed_qos(&account, own);
    let said = allowed != [squall_model::policy::NORMAL];
    match &spec.qos {
        None => {
            if let Some(qos) = policy.default_qos(&account, own) {
                Arc::make_mut(spec).qos = Some(qos.to_owned());
            }
            let usable = allowed.contains(&gates::qos_name(state, spec));
            if !usable && (enforce.qos || (said && spec.qos.is_some())) {
                return Err(Refusal::InvalidQos(gates::qos_name(state, spec).to_owned()));
            }
        }
        Some(qos) if (enforce.qos || said) && !allowed.contains(&qos.as_str()) => {
            return Err(Refusal::InvalidQos(qos.clone()));
        }
        Some(_) => {}
    }
    Ok(())
}

/// Returns the defined name that equals the user's spelling apart from case, as in Slurm. None: no name was given, or
/// none is equal.
fn as_set_up<T>(name: Option<&String>, known: &BTreeMap<String, T>) -> Option<String> {
    let asked = name.filter(|asked| !known.contains_key(*asked))?;
    known.keys().find(|other| other.eq_ignore_ascii_case(asked)).cloned()
}

/// Checks that a partition allows the job's account and QOS.
pub(crate) fn partition_takes(state: &State, partition: &PartitionConfig, spec: &JobSpec) -> Result<(), Refusal> {
    let (account, qos) = (gates::account_of(state, spec), gates::qos_name(state, spec));
    let keeps_out = |allowed: &[String], denied: &[String], name: &str| {
        let named = |list: &[String]| list.iter().any(|other| other == name);
        (!allowed.is_empty() && !named(allowed)) || named(denied)
    };
    if keeps_out(&partition.allow_accounts, &partition.deny_accounts, account) {
        return Err(Refusal::InvalidAccount(account.to_owned()));
    }
    if keeps_out(&partition.allow_qos, &partition.deny_qos, qos) {
        return Err(Refusal::InvalidQos(qos.to_owned()));
    }
    Ok(())
}

/// Refuses a job that exceeds a limit on submitted jobs. With the QOS flag `DenyOnLimit` it also refuses a job that
/// would exceed any limit even if it ran alone.
pub(crate) fn within_limits(state: &State, owner: &Owner, spec: &JobSpec, size: u64) -> Result<(), Refusal> {
    if let Some((whose, limit)) = limits::refused(state, owner, spec, size) {
        return Err(Refusal::Limit(whose, limit));
    }
    if gates::qos_of(state, spec).is_some_and(|qos| qos.has("DenyOnLimit"))
        && let Some((whose, limit)) =
            limits::broken(state, owner, spec, &Queue::default(), gates::first_partition(state, spec))
    {
        return Err(Refusal::Limit(whose, limit));
    }
    Ok(())
}
