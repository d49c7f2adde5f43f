//! Programs that the kernel runs when a process of a cgroup opens a device file or connects to an address; see bpf(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// An instruction in the kernel's form (`struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// What is done.
    pub(crate) code: u8,
    /// The register with the result in the lower half, that with the operand in the upper.
    pub(crate) registers: u8,
    /// Offset in memory, or number of instructions to pass over.
    pub(crate) offset: i16,
    /// A constant.
    pub(crate) value: i32,
}

/// The register with the program's answer: 0 denies.
pub(crate) const ANSWER: u8 = 0;
/// The register with the address of what the program is asked about.
pub(crate) const CONTEXT: u8 = 1;

/// Returns `to = *(u32 *)(from + offset)`.
pub(crate) const fn load(to: u8, from: u8, offset: i16) -> Instruction {
    Instruction { code: 0x61, registers: pair(to, from), offset, value: 0 }
}

/// Returns `*(u32 *)(to + offset) = from`.
pub(crate) const fn store(to: u8, from: u8, offset: i16) -> Instruction {
    Instruction { code: 0x63, registers: pair(to, from), offset, value: 0 }
}

/// Returns `to &= value`, in 32 bits.
pub(crate) const fn and(to: u8, value: i32) -> Instruction {
    Instruction { code: 0x54, registers: pair(to, 0), offset: 0, value }
}

/// Returns `to = value`.
pub(crate) const fn set(to: u8, value: i32) -> Instruction {
    Instruction { code: 0xb7, registers: pair(to, 0), offset: 0, value }
}

/// Returns `if register != value pass over`, with so many instructions to pass over, in 32 bits.
pub(crate) const fn unless(register: u8, value: i32, over: i16) -> Instruction {
    Instruction { code: 0x56, registers: pair(register, 0), offset: over, value }
}

/// Returns the end of the program.
pub(crate) const fn exit() -> Instruction {
    Instruction { code: 0x95, registers: 0, offset: 0, value: 0 }
}

/// Two registers in one byte, which is a pair of bit fields.
const fn pair(to: u8, from: u8) -> u8 {
    if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from }
}

/// What bpf(2) loads (the head of `union bpf_attr`).
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log: [u64; 2],
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    at: u32,
}

/// What bpf(2) attaches (the head of `union bpf_attr`).
#[repr(C)]
#[derive(Default)]
struct Attach {
    target: u32,
    program: u32,
    at: u32,
    flags: u32,
}

const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const KIND_CGROUP_SOCK_ADDR: u32 = 18;
const KIND_CGROUP_DEVICE: u32 = 15;
/// Beside the programs of others in the same group and in those above: all must agree.
const ALLOW_MULTI: u32 = 2;

/// What a process does when the kernel asks a program (`enum bpf_attach_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// It opens a device file.
    Device = 6,
    /// It connects to an address of IPv4. The program may change that.
    Connect4 = 10,
    /// It connects to an address of IPv6. The program may change that.
    Connect6 = 11,
}

/// Has the kernel ask this program whenever a process of a v2 cgroup does this. It stays until the group is removed. Needs the
/// rights of root over all of the machine (`CAP_BPF` and `CAP_NET_ADMIN`, or `CAP_SYS_ADMIN`).
pub(crate) fn attach_to_group(group: BorrowedFd<'_>, at: Occasion, program: &[Instruction]) -> io::Result<()> {
    let load = Load {
        kind: if at == Occasion::Device { KIND_CGROUP_DEVICE } else { KIND_CGROUP_SOCK_ADDR },
        at: at as u32,
        count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        ..Load::default()
    };
    let loaded = call(PROG_LOAD, &load)?;
    // SAFETY: the kernel has just made this descriptor, so that nothing else owns it.
    let loaded = unsafe { OwnedFd::from_raw_fd(loaded) };
    let attach = Attach {
        target: group.as_raw_fd() as u32,
        program: loaded.as_raw_fd() as u32,
        at: at as u32,
        flags: ALLOW_MULTI,
    };
    call(PROG_ATTACH, &attach).map(drop)
}

/// Calls bpf(2) with the head of its union; the rest counts as zero.
fn call<T>(command: libc::c_int, head: &T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads as much as the given size, which is the struct's. Addresses in it are those of slices and
    // texts that outlive the call, with their lengths; both structs have no padding.
    let got = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(head), size_of::<T>()) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as libc::c_int) }
}
