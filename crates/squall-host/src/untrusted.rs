//! Bytes of strangers as the daemons process them, for fuzz targets (`fuzz/`): the functions below run code that is
//! private to this crate, and change nothing.

use std::io;

use squall_engine::control::Cast;
use squall_files::place::Place;
use squall_model::codec;
use squall_model::config::Config;
use squall_model::encoding::from_slice;
use squall_model::wire::fabric::{Bytes, StreamKey};
use squall_model::wire::join::Bearer;

use crate::bearer::Bearers;
use crate::multicast::datagram::{Assembler, Sealed, stream_of};
use crate::noise::{Handshake, KeyPair};
use crate::stepd::batch_supervisor::{FromSupervisor, ToSupervisor};

/// Decodes a message between the node daemon and the batch supervisor, in either direction.
pub fn batch_supervisor(bytes: &[u8]) {
    drop((from_slice::<ToSupervisor>(bytes), from_slice::<FromSupervisor>(bytes)));
    drop(codec::take::<FromSupervisor>(bytes));
}

/// Processes a datagram of a multicast stream with this number and key. Returns the piece that it completes, if it is
/// a piece by itself.
pub fn datagram(stream: u64, key: [u8; 32], datagram: &mut [u8]) -> Option<(u64, Vec<u8>)> {
    if stream_of(datagram)? != stream {
        return None;
    }
    Assembler::new(stream, &StreamKey(key)).take(datagram).map(|(at, piece)| (at, piece.0.to_vec()))
}

/// Returns the datagrams by which a piece of a file is sent.
pub fn datagrams(stream: u64, key: [u8; 32], at: u64, piece: &[u8]) -> Vec<Vec<u8>> {
    let cast = Cast { stream, key: StreamKey(key), at, bytes: Bytes(piece.into()), rate: 1, last: false };
    Sealed::new(&cast).datagrams(&mut 0).collect()
}

/// Processes the first message of a peer that has connected to a daemon with this key. Err: the peer is refused.
pub fn handshake(key: &KeyPair, message: &[u8]) -> io::Result<()> {
    Handshake::answer(key)?.read(message)
}

/// Checks a token as the controller with this state folder does, and returns the name of its user. Err: why it is not
/// accepted.
pub fn bearer(place: &Place, token: &str) -> Result<String, String> {
    let bearer = Bearer { token: token.to_owned(), user: None, passed: None };
    Bearers::of(place, &Config::default()).user(&bearer).map(|borne| borne.user.name)
}
