//! `sprio` and `sshare`: priorities and fair shares.

use squall_model::policy::Real;
use squall_model::wire::client::{Answer, JobSelection};
use squall_model::wire::priority_info::{JobPriority, Priorities, Share};
use squall_sched::Item;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::select::select_to_show;
use crate::control::index::fair;
use crate::control::index::pending::{Pending, partitions_of, pending};
use crate::control::index::privacy::Sight;
use crate::control::index::reckon;
use crate::control::index::reckon::Standee;
use crate::control::state::gates;

/// Returns the pending jobs with their priority factors, once for each partition.
pub(crate) fn priorities(c: &Controller, ask: &Ask<'_>, jobs: &JobSelection) -> Reply {
    let config = &c.state.config;
    let mut all = Priorities::default();
    if reckon::is_multifactor(config) {
        all.weights = reckon::weights(config);
        all.tres = Some(config.priority_weight_tres.as_str().to_owned()).filter(|text| !text.is_empty());
    }
    let selected = select_to_show(&c.state, Some(&Sight::of(&c.state, ask.who)), jobs, false)?;
    let arrays = selected.tasks.into_iter().map(|tasks| Item { id: tasks.array, array: true });
    let single = selected.jobs.into_iter().map(|id| Item { id, array: false });
    for waiting in arrays.chain(single).filter_map(|item| pending(&c.state, item)) {
        all.jobs.extend(partitions_of(&c.state, waiting.spec).map(|at| one(c, ask, &waiting, at)));
    }
    all.jobs.sort_by_key(|job| job.id);
    Ok(Some(Answer::Priorities(Box::new(all))))
}

fn one(c: &Controller, ask: &Ask<'_>, waiting: &Pending<'_>, partition: usize) -> JobPriority {
    let (state, job) = (&c.state, Standee::of(waiting));
    let points = c.queue.reckoning.points(state, &job, partition);
    let points: Vec<String> = points.into_iter().map(|(name, points)| format!("{name}={points:.0}")).collect();
    JobPriority {
        id: waiting.item.id,
        task: waiting.task,
        user: waiting.owner.user.clone(),
        uid: waiting.owner.uid,
        account: gates::account_of(state, waiting.spec).to_owned(),
        qos: gates::qos_name(state, waiting.spec).to_owned(),
        partition: state.partitions[partition].config.name.clone(),
        priority: c.queue.reckoning.priority(state, &job, partition, ask.now),
        fixed: job.fixed().is_some(),
        nice: waiting.spec.nice,
        factors: c.queue.reckoning.factors(state, &job, partition, ask.now),
        tres: (!points.is_empty()).then(|| points.join(",")),
    }
}

/// Returns accounts and users with their shares. Without any association, the caller is shown in the default account.
pub(crate) fn shares(c: &Controller, ask: &Ask<'_>) -> Answer {
    let mut shares = fair::shares(&c.state, ask.now);
    if let [root] = shares.as_mut_slice()
        && c.state.policy.associations.is_empty()
    {
        root.account.clone_from(&c.state.config.default_account);
        let user = ask.who.owner.user.clone();
        let own = Share { depth: 1, user, norm_shares: Real(1.0), fairshare: Real(1.0), ..root.clone() };
        shares.push(own);
    }
    let sight = Sight::of(&c.state, ask.who);
    shares.retain(|share| sight.share(share));
    Answer::Shares(shares)
}
