//! The order of requests, and what becomes of them when a process of the filter ends.

use proptest::prelude::*;
use squall_model::wire::filter::{Submission, ToFilter, Verdict};

use super::{Batch, PROCESSES_MAX, Queue};

fn parts(count: usize) -> Vec<ToFilter> {
    (0..count).map(|_| ToFilter::Submit(Box::<Submission>::default())).collect()
}

fn queue_of(requests: &[(u32, usize)]) -> Queue<usize> {
    let mut queue = Queue::default();
    for (number, (uid, count)) in requests.iter().enumerate() {
        queue.add(*uid, parts(*count), number);
    }
    queue
}

fn only_batch(requests: &[(u32, usize)]) -> Batch<usize> {
    queue_of(requests).take().expect("a request waits")
}

#[test]
fn a_user_has_one_process_at_a_time() {
    let mut queue = queue_of(&[(1, 1), (2, 1)]);
    let first = queue.take().expect("user 1 waits");
    queue.add(1, parts(1), 2);
    assert_eq!(queue.take().map(|batch| batch.uid), Some(2));
    assert!(queue.take().is_none());
    queue.done(first.uid);
    assert_eq!(queue.take().map(|batch| batch.uid), Some(1));
}

#[test]
fn the_number_of_processes_is_bounded() {
    let requests: Vec<_> = (0..20).map(|uid| (uid, 1)).collect();
    let mut queue = queue_of(&requests);
    assert_eq!(std::iter::from_fn(|| queue.take()).count(), PROCESSES_MAX);
    assert_eq!(queue.withdraw().len(), 20 - PROCESSES_MAX);
}

#[test]
fn a_request_with_which_two_processes_end_is_refused() {
    let mut batch = only_batch(&[(1, 1), (1, 1)]);
    assert_eq!((batch.fail(false), batch.fail(false)), (None, Some(0)));
    assert_eq!((batch.fail(false), batch.take(Verdict::default())), (None, Some((1, vec![Verdict::default()]))));
    assert!(batch.is_empty());
}

#[test]
fn a_request_that_takes_too_long_is_refused_at_once() {
    assert_eq!(only_batch(&[(1, 1), (1, 1)]).fail(true), Some(0));
}

#[test]
fn a_new_process_begins_with_the_first_part_of_a_request() {
    let mut batch = only_batch(&[(1, 2)]);
    assert_eq!(batch.take(Verdict { error: 7, ..Verdict::default() }), None);
    assert_eq!(batch.fail(false), None);
    let fine = Verdict::default();
    assert_eq!(batch.take(fine.clone()), None);
    assert_eq!(batch.take(fine.clone()), Some((0, vec![fine.clone(), fine])));
}

#[test]
fn a_limit_that_is_reached_refuses_the_whole_request() {
    let mut batch = only_batch(&[(1, 3), (1, 1)]);
    let over = Verdict { error: 1, ends: true, ..Verdict::default() };
    assert_eq!(batch.take(over.clone()), Some((0, vec![over.clone(), over.clone(), over])));
    assert_eq!(batch.messages().count(), 1);
}

proptest! {
    /// Whatever processes do: each request is decided once, and those of a user in the order in which they came.
    #[test]
    fn each_request_is_decided_once_and_in_order(
        requests in prop::collection::vec((0u32..4, 1usize..4), 0..80),
        mut turns in prop::collection::vec(0u8..8, 0..400),
    ) {
        let mut queue = queue_of(&requests);
        let (mut running, mut decided) = (Vec::new(), Vec::new());
        loop {
            running.extend(std::iter::from_fn(|| queue.take()));
            let at = usize::from(turns.last().copied().unwrap_or(0)) % running.len().max(1);
            let Some(batch): Option<&mut Batch<usize>> = running.get_mut(at) else { break };
            let done = match turns.pop().unwrap_or(0) {
                1 => batch.fail(false),
                2 => batch.fail(true),
                turn => batch.take(Verdict { ends: turn == 3, ..Verdict::default() }).map(|(request, verdicts)| {
                    assert_eq!(verdicts.len(), requests[request].1);
                    request
                }),
            };
            decided.extend(done);
            if running[at].is_empty() {
                queue.done(running.remove(at).uid);
            }
        }
        for user in 0..4 {
            let own = |number: &usize| requests[*number].0 == user;
            let came: Vec<usize> = (0..requests.len()).filter(own).collect();
            let left: Vec<usize> = decided.iter().copied().filter(own).collect();
            prop_assert_eq!(left, came);
        }
    }
}
