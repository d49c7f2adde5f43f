//! Leads what a job's processes connect to from addresses of before to those of the nodes where the job goes on now: programs
//! keep the addresses that they have learnt at their start, and many connect only when they have something to send.

use std::fs::File;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::AsFd;
use std::path::Path;

use crate::sys::bpf::{ANSWER, CONTEXT, Instruction, Occasion, attach_to_group, exit, load, set, store, unless};

/// Most addresses that are redirected: a program has at most 4,096 instructions where the rights are few.
const PAIRS_MAX: usize = 250;
/// Where `struct bpf_sock_addr` has the address of IPv4, and the first word of that of IPv6.
const IP4: i16 = 4;
const IP6: i16 = 8;
/// The first of the registers with the words of the address, and one for a word of another.
const WORDS: u8 = 2;
const SPARE: u8 = 6;

/// Has processes of a v2 cgroup connect to the second address of a pair when they want to connect to the first one.
pub(super) fn redirect(group: &Path, pairs: &[(u128, u128)]) -> io::Result<()> {
    let group = File::open(group)?;
    let four: Vec<_> = pairs.iter().filter_map(|(old, new)| Some((four(*old)?, four(*new)?))).collect();
    let six: Vec<_> = pairs.iter().map(|(old, new)| (words(*old), words(*new))).collect();
    attach_to_group(group.as_fd(), Occasion::Connect4, &program(&four, IP4))?;
    attach_to_group(group.as_fd(), Occasion::Connect6, &program(&six, IP6))
}

/// Returns an address of IPv4 as it stands in memory. None: it is one of IPv6.
fn four(address: u128) -> Option<[u32; 1]> {
    Ipv6Addr::from_bits(address).to_ipv4_mapped().map(|address| [u32::from_ne_bytes(address.octets())])
}

fn words(address: u128) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(address.to_be_bytes().as_chunks().0) {
        *word = u32::from_ne_bytes(*bytes);
    }
    words
}

/// Returns the program for addresses of so many words, which stand at `at` of what it is asked about.
fn program<const N: usize>(pairs: &[([u32; N], [u32; N])], at: i16) -> Vec<Instruction> {
    let words = || (WORDS..).zip((at..).step_by(4)).take(N);
    let mut made: Vec<Instruction> = words().map(|(register, at)| load(register, CONTEXT, at)).collect();
    for (old, new) in pairs.iter().take(PAIRS_MAX) {
        let changes = words().zip(new).flat_map(|((_, at), new)| [set(SPARE, *new as i32), store(CONTEXT, SPARE, at)]);
        // A comparison passes over those after it, and the changes.
        let over = (0..3 * N as i16).rev();
        made.extend(words().zip(old).zip(over).map(|(((register, _), old), over)| unless(register, *old as i32, over)));
        made.extend(changes);
    }
    made.extend([set(ANSWER, 1), exit()]);
    made
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;

    use super::{program, redirect};
    use crate::sys::bpf::{exit, load, set, store, unless};
    use crate::sys::interfaces::as_six;

    #[test]
    fn a_program_changes_an_address_as_a_whole() {
        let one = program(&[([7], [8])], 4);
        assert_eq!(one, [load(2, 1, 4), unless(2, 7, 2), set(6, 8), store(1, 6, 4), set(0, 1), exit()]);
        let two = program(&[([1, 2], [3, 4])], 8);
        let wanted = [
            load(2, 1, 8),
            load(3, 1, 12),
            unless(2, 1, 5),
            unless(3, 2, 4),
            set(6, 3),
            store(1, 6, 8),
            set(6, 4),
            store(1, 6, 12),
            set(0, 1),
            exit(),
        ];
        assert_eq!(two, wanted);
    }

    /// A process of the group that connects to the address of before reaches the server at that of now.
    #[test]
    fn connections_lead_to_where_the_node_is_now() {
        let base = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
            .map(Path::new)
            .into_iter()
            .find(|base| base.join("cgroup.procs").exists());
        let Some(base) = base else { return eprintln!("skipped: no cgroups of version 2") };
        let own = base.join(format!("squall-redirects-{}", std::process::id()));
        if fs::create_dir(&own).is_err() {
            return eprintln!("skipped: needs root");
        }
        let of = |text: &str| as_six(text.parse().unwrap());
        match redirect(&own, &[(of("127.7.7.1"), of("127.7.7.2")), (of("127.7.7.2"), of("127.7.7.3"))]) {
            Ok(()) => {
                let server = TcpListener::bind("127.7.7.2:0").unwrap();
                let port = server.local_addr().unwrap().port();
                assert_eq!(TcpStream::connect(("127.7.7.1", port)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
                let script = format!("echo $$ > {}/cgroup.procs; exec 3<>/dev/tcp/127.7.7.1/{port}", own.display());
                let done = std::process::Command::new("bash").args(["-c", &script]).status().unwrap();
                assert!(done.success());
            }
            Err(e) => eprintln!("skipped: the kernel takes no program: {e}"),
        }
        fs::remove_dir(own).unwrap();
    }
}
