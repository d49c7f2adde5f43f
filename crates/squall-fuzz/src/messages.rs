//! Messages on connections, records and values: whatever is decoded is encoded to bytes that mean the same.

use squall_host::untrusted;
use squall_model::codec;
use squall_model::encoding::{self, Decoded, Encoded};
use squall_model::event::Record;
use squall_model::replica;
use squall_model::step::{FromStep, ToStep};
use squall_model::wire::Hello;
use squall_model::wire::client::{Answer, AnyRequest};
use squall_model::wire::fabric::{DownFrame, UpFrame};
use squall_model::wire::feed::FeedPage;
use squall_model::wire::filter::{FromFilter, ToFilter};
use squall_model::wire::join::{JoinAnswer, Question};
use squall_model::wire::peer::PeerMessage;
use squall_model::wire::stepd::{FromStepd, ToStepd};

/// Decodes the bytes as a message, and as a frame of it.
fn message<T: Decoded + Encoded>(bytes: &[u8]) {
    drop(codec::take::<T>(bytes));
    let Ok(first) = encoding::from_slice::<T>(bytes) else { return };
    assert_eq!(encoding::size(&first), encoding::to_vec(&first).len());
    same(&first);
}

/// Encodes a value, decodes that, and compares.
fn same<T: Decoded + Encoded>(value: &T) {
    let bytes = encoding::to_vec(value);
    let again = encoding::from_slice::<T>(&bytes).expect("what was encoded is decoded");
    assert_eq!(encoding::to_vec(&again), bytes, "it means something else");
}

pub(crate) fn client_request(bytes: &[u8]) {
    message::<AnyRequest>(bytes);
}

pub(crate) fn client_answer(bytes: &[u8]) {
    message::<Answer>(bytes);
}

pub(crate) fn greeting(bytes: &[u8]) {
    message::<Hello>(bytes);
    if let Ok(hello) = encoding::from_slice::<Hello>(bytes) {
        drop(hello.agreed());
    }
}

pub(crate) fn node_up(bytes: &[u8]) {
    message::<UpFrame>(bytes);
}

pub(crate) fn node_down(bytes: &[u8]) {
    message::<DownFrame>(bytes);
}

pub(crate) fn step_daemon(bytes: &[u8]) {
    message::<ToStepd>(bytes);
    message::<FromStepd>(bytes);
    message::<ToFilter>(bytes);
    message::<FromFilter>(bytes);
}

pub(crate) fn step_client(bytes: &[u8]) {
    message::<ToStep>(bytes);
    message::<FromStep>(bytes);
}

pub(crate) fn batch_supervisor(bytes: &[u8]) {
    untrusted::batch_supervisor(bytes);
}

pub(crate) fn peer(bytes: &[u8]) {
    message::<PeerMessage>(bytes);
}

pub(crate) fn join(bytes: &[u8]) {
    message::<Question>(bytes);
    message::<JoinAnswer>(bytes);
}

pub(crate) fn feed(bytes: &[u8]) {
    message::<FeedPage>(bytes);
}

pub(crate) fn event(bytes: &[u8]) {
    message::<Record>(bytes);
}

pub(crate) fn etcd(bytes: &[u8]) {
    message::<replica::Leader>(bytes);
    message::<replica::Head>(bytes);
    message::<replica::Entry>(bytes);
    message::<replica::Member>(bytes);
    message::<replica::Handover>(bytes);
    message::<replica::TrustFile>(bytes);
}
