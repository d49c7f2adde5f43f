//! Whatever a relay changes about a put, the nodes behind it refuse it.

use std::sync::Arc;

use proptest::prelude::*;
use squall_model::encoding::{self, ByteBuf};
use squall_model::id::{Attempt, Epoch, JobId, NodeId, StepKey, StepNo};
use squall_model::job::{Blob, Digest, JobAttempt, JobSpec, Owner};
use squall_model::set::NodeSet;
use squall_model::step::{BatchStart, JobFacts, StepLaunch};
use squall_model::wire::fabric::{Parcel, Put};
use squall_model::wire::node::{Down, EndReason};
use squall_model::wire::proof::{SIGNATURE_BYTES, Warrant};
use squall_model::wire::sealed::Sealed;

use crate::fabric::proof::{Checked, Pinned, Sign, Signers, Unproven, check, covers, prove};

/// A key for tests: its signatures are digests with a secret.
#[derive(Clone, Copy, Debug)]
struct Key(u8);

impl Sign for Key {
    fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let digest = Digest::of(&[bytes, &[self.0]].concat()).0;
        let mut signature = [0; SIGNATURE_BYTES];
        signature[..32].copy_from_slice(&digest);
        signature[32..].copy_from_slice(&digest);
        signature
    }
}

impl Signers for Key {
    fn are_known(&self) -> bool {
        true
    }

    fn have_signed(&self, bytes: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        self.sign(bytes) == *signature
    }

    fn open(&self, _: (Epoch, u64), bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }
}

const HERE: NodeId = NodeId(2);

fn pinned() -> Pinned {
    Pinned(Some(Arc::new(Key(1))))
}

fn facts(job: u32) -> Arc<JobFacts> {
    let owner = Owner { uid: 1001, gid: 1001, user: "ann".into(), ..Owner::default() };
    Arc::new(JobFacts {
        key: StepKey { job: JobId(job), step: StepNo::BATCH, ..StepKey::default() },
        owner: Arc::new(owner),
        spec: Arc::new(JobSpec { name: "job".into(), ..JobSpec::default() }),
        nodes: ["n1", "n2", "n3"].into_iter().collect(),
        ids: (1..=3).map(NodeId).collect(),
        ..JobFacts::default()
    })
}

fn start(job: u32) -> (Down, StepLaunch) {
    let (facts, batch) = (facts(job), BatchStart { node: HERE, ..BatchStart::default() });
    let launch = batch.launch_on(&facts, HERE).unwrap();
    (Down::StartJob { facts, batch: Some(batch) }, launch)
}

fn put(seq: u64, to: &[u32], messages: Vec<Down>) -> Put {
    let to: NodeSet = to.iter().map(|&node| NodeId(node)).collect();
    let blobs = vec![Blob::new(b"#!/bin/sh".to_vec())];
    let parcel = Sealed::new(Parcel { blobs, ..Parcel::of(messages, Some(to.clone())) });
    Put { epoch: Epoch(3), seq, to, asks: Vec::new(), parcel, proof: None }
}

fn signed(mut puts: Vec<Put>) -> Vec<Put> {
    prove(&Key(1), &mut puts);
    puts
}

fn problem(put: &Put) -> Option<Unproven> {
    check(&pinned(), put, Some(HERE), "n2").err()
}

#[test]
fn c1_a_put_is_taken_as_it_was_sent_and_in_no_other_way() {
    let (message, launch) = start(7);
    let puts = signed(vec![put(4, &[1, 2], vec![message]), put(5, &[3], vec![Down::Knock])]);
    let Checked { parcel, evidence } = check(&pinned(), &puts[0], Some(HERE), "n2").unwrap();
    assert_eq!((parcel.messages.len(), parcel.blobs.len()), (1, 1));
    let warrant = evidence.unwrap().warrant(0).unwrap();
    assert!(covers(&Key(1), &warrant, &launch));
    // Relays narrow the set, and that changes nothing.
    assert_eq!(problem(&Put { to: NodeSet::one(HERE), ..puts[0].clone() }), None);
    // Another epoch or number: a replay.
    assert_eq!(problem(&Put { epoch: Epoch(4), ..puts[0].clone() }), Some(Unproven::Forged));
    assert_eq!(problem(&Put { seq: 6, ..puts[0].clone() }), Some(Unproven::Forged));
    // Another key, no proof, the proof of another put.
    assert_eq!(problem(&Put { proof: None, ..puts[0].clone() }), Some(Unproven::Forged));
    assert_eq!(problem(&Put { proof: puts[1].proof.clone(), ..puts[0].clone() }), Some(Unproven::Forged));
    let mut other = vec![puts[0].clone()];
    prove(&Key(2), &mut other);
    assert_eq!(problem(&other[0]), Some(Unproven::Forged));
    // For another node.
    assert_eq!(problem(&puts[1]), Some(Unproven::NotForThis));
    assert_eq!(check(&pinned(), &puts[0], Some(NodeId(3)), "n3").unwrap_err(), Unproven::NotForThis);
    assert_eq!(check(&pinned(), &puts[0], None, "n2").unwrap_err(), Unproven::NotForThis);
}

#[test]
fn c1_no_node_takes_the_id_or_the_refusal_of_another() {
    let welcome = |name: Option<&str>| Down::Welcome { node: NodeId(9), name: name.map(str::to_owned) };
    let refused = Down::Refused { reason: "go".into(), name: Some("n9".into()) };
    for (message, expected) in [
        (welcome(Some("n2")), None),
        (welcome(Some("n9")), Some(Unproven::NotForThis)),
        (welcome(None), Some(Unproven::NotForThis)),
        (refused, Some(Unproven::NotForThis)),
        (Down::Identify, None),
        (Down::ShutDown { keep_jobs: false }, Some(Unproven::NotForThis)),
    ] {
        let parcel = Sealed::new(Parcel { messages: vec![message], ..Parcel::default() });
        let puts = signed(vec![Put { parcel, ..put(1, &[], Vec::new()) }]);
        assert_eq!(check(&pinned(), &puts[0], None, "n2").err(), expected, "{puts:?}");
    }
}

#[test]
fn c1_a_warrant_covers_its_steps_and_no_others() {
    let (first, launch) = start(7);
    let (second, other) = start(8);
    let puts = signed(vec![put(4, &[2], vec![first, Down::Knock, second])]);
    let evidence = check(&pinned(), &puts[0], Some(HERE), "n2").unwrap().evidence.unwrap();
    let warrants: Vec<_> = (0..3).filter_map(|index| evidence.warrant(index)).collect();
    let warrant = &warrants[0];
    assert!(covers(&Key(1), warrant, &launch) && covers(&Key(1), &warrants[2], &other));
    assert!(!covers(&Key(1), &warrants[1], &launch) && !covers(&Key(1), &warrants[2], &launch));
    let moved = Warrant { message: warrants[2].message.clone(), ..(**warrant).clone() };
    assert!(!covers(&Key(1), &moved, &other));
    assert!(!covers(&Key(2), warrant, &launch));
    let with = |change: &dyn Fn(&mut JobFacts)| {
        let mut launch = launch.clone();
        change(Arc::make_mut(&mut launch.facts));
        covers(&Key(1), warrant, &launch)
    };
    assert!(!with(&|facts| Arc::make_mut(&mut facts.owner).uid = 0));
    assert!(!with(&|facts| Arc::make_mut(&mut facts.owner).gid = 42));
    assert!(!with(&|facts| Arc::make_mut(&mut facts.owner).groups.push(42)));
    assert!(!with(&|facts| Arc::make_mut(&mut facts.spec).script = Some(Digest::of(b"other"))));
    assert!(!with(&|facts| Arc::make_mut(&mut facts.spec).work_dir = "/root".into()));
    assert!(with(&|facts| facts.start.0 += 1), "a leased job begins later");
    let step = StepKey { step: StepNo(0), ..launch.key };
    assert!(!covers(&Key(1), warrant, &StepLaunch { key: step, ..launch.clone() }));
    assert!(!covers(&Key(1), warrant, &StepLaunch { node: "n3".into(), ..launch.clone() }));
    assert!(!covers(&Key(1), warrant, &StepLaunch { memory_mb: 1 << 30, ..launch.clone() }));
    // What the node adds.
    assert!(covers(&Key(1), warrant, &StepLaunch { cores: [5].into_iter().collect(), ..launch.clone() }));
}

/// attack-trial.md B2: a relay takes the order to end a job out of a put, and adds what it hashes to to the put's path.
#[test]
fn b2_no_message_can_be_taken_out_of_a_put() {
    let end = Down::EndJob {
        job: JobAttempt { job: JobId(7), attempt: Attempt(1) },
        kill_wait_s: 0,
        cont: true,
        why: EndReason::Cancelled,
        exit: None,
    };
    let stripped = |parcel: Parcel| {
        let parcel = Sealed::new(parcel);
        let mut put = signed(vec![Put { parcel, ..put(4, &[2], Vec::new()) }]).remove(0);
        assert_eq!(problem(&put), None);
        // The leaf of the message, as it is hashed: it becomes the left sibling of what is left.
        let message = encoding::to_vec(&end);
        let leaf = [b"squall put 1\0", &3_u64.to_le_bytes()[..], &4_u64.to_le_bytes(), &message].concat();
        let mut proof = (**put.proof.as_ref().unwrap()).clone();
        (proof.path.leaf, proof.path.leaves) = (1, 2);
        proof.path.siblings = ByteBuf::from(Digest::of(&leaf).0.to_vec());
        put.proof = Some(Arc::new(proof));
        let Sealed::Bytes(bytes) = &put.parcel else { panic!("it is signed") };
        let at = bytes.windows(message.len()).position(|bytes| bytes == message).unwrap();
        let mut less = bytes.to_vec();
        less.drain(at..at + message.len());
        assert_eq!(less[1], 0x81, "a list of one message");
        less[1] = 0x80;
        put.parcel = Sealed::Bytes(less.into());
        problem(&put)
    };
    let parcel = Parcel::of(vec![end.clone()], Some(NodeSet::one(HERE)));
    // What an older controller signs can't be told from less. It shows that this is the attack.
    assert_eq!(stripped(Parcel { count: None, ..parcel.clone() }), None);
    assert_eq!(stripped(parcel), Some(Unproven::Forged));
}

proptest! {
    #[test]
    fn each_of_many_puts_has_its_own_proof(count in 1_usize..40, copies in 1_usize..3) {
        let puts: Vec<Put> = (0..count as u64)
            .flat_map(|seq| vec![put(seq, &[2], vec![start(seq as u32 + 1).0]); copies])
            .collect();
        for put in signed(puts) {
            prop_assert_eq!(problem(&put), None);
            let proof = put.proof.clone().unwrap();
            let mut leaf = (*proof).clone();
            leaf.path.leaf = (leaf.path.leaf + 1) % leaf.path.leaves;
            let moved = Put { proof: Some(Arc::new(leaf)), ..put.clone() };
            prop_assert_eq!(problem(&moved).is_none(), proof.path.leaves == 1);
            let mut longer = (*proof).clone();
            longer.path.siblings = ByteBuf::from([&longer.path.siblings[..], &[0; 32]].concat());
            let padded = Put { proof: Some(Arc::new(longer)), ..put };
            prop_assert_eq!(problem(&padded), Some(Unproven::Forged));
        }
    }

    /// A relay may send any bytes.
    #[test]
    fn c1_one_changed_bit_is_enough(bit in 0_usize..20_000) {
        let put = signed(vec![put(4, &[1, 2], vec![start(7).0]), put(5, &[2], vec![Down::Knock])]).remove(0);
        let mut bytes = encoding::to_vec(&put);
        let bit = bit % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(changed) = encoding::from_slice::<Put>(&bytes)
            && check(&pinned(), &changed, Some(HERE), "n2").is_ok()
        {
            // Routing is the relays' own matter.
            prop_assert_eq!((changed.epoch, changed.seq, &changed.parcel), (put.epoch, put.seq, &put.parcel));
        }
    }
}
