//! Device files that a job or step may not open: by a program in its v2 group, or by v1's devices controller.
//!
//! The program is asked by the kernel at each opening of a device file by a process of the group, and of those below it.
//! It denies the listed devices and knows no others, so that all else stays as it is. Where a job's group and a step's
//! have one each, both must agree.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use super::{Hierarchy, make_dir, write};
use crate::sys::bpf::{self, Instruction, Occasion};

/// The kernel's number of the character device `/dev/nvidia0`; its driver makes that file only when it is first used.
const NVIDIA_MAJOR: u32 = 195;

/// A device as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Device {
    /// Whether it is a block device; otherwise it is a character device.
    pub(crate) block: bool,
    /// The number of its driver.
    pub(crate) major: u32,
    /// Its number among those of the driver.
    pub(crate) minor: u32,
}

impl Device {
    /// Returns the device of a file. Err: there is no such file, or it is no device.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let found = match fs::metadata(path) {
            Ok(found) => found,
            Err(e) => return nvidia(path).ok_or(e),
        };
        let kind = found.file_type();
        if !kind.is_char_device() && !kind.is_block_device() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no device file"));
        }
        Ok(Self { block: kind.is_block_device(), major: major(found.rdev()), minor: minor(found.rdev()) })
    }

    /// Formats the device as v1's devices controller reads it: `c 195:0`.
    fn text(self) -> String {
        format!("{} {}:{}", if self.block { 'b' } else { 'c' }, self.major, self.minor)
    }
}

/// Returns the device of `/dev/nvidia0` and its like, which may not be there yet.
fn nvidia(path: &Path) -> Option<Device> {
    let minor = path.to_str()?.strip_prefix("/dev/nvidia")?.parse().ok()?;
    Some(Device { block: false, major: NVIDIA_MAJOR, minor })
}

/// How a node keeps jobs from devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Means {
    /// It does not.
    #[default]
    None,
    /// By a program in the v2 group.
    Program,
    /// By a group of v1's devices controller.
    Group(Hierarchy),
    /// It should, but can't, for this reason: no step with devices to be denied is started.
    Impossible(String),
}

impl Means {
    /// Finds out how devices can be denied. `v2`: the node's folder in that hierarchy; `v1`: makes the node's folder in
    /// that of the devices controller. Err: they can't be, for this reason.
    pub(super) fn find(v2: Option<&Path>, v1: impl FnOnce() -> Option<Hierarchy>) -> Result<Self, String> {
        let tried = v2.map(|base| try_program(&base.join("trial")));
        if let Some(Ok(())) = tried {
            return Ok(Self::Program);
        }
        if let Some(own) = v1().filter(|own| own.base.join("devices.deny").exists()) {
            return Ok(Self::Group(own));
        }
        Err(match tried {
            Some(Err(e)) => format!("the kernel takes no program for v2 cgroups ({e}) and has no devices controller"),
            _ => "there is neither a v2 cgroup nor v1's devices controller".to_owned(),
        })
    }

    /// Returns the folder of the hierarchy with v1's devices controller.
    pub(super) fn own(&self) -> Option<&Hierarchy> {
        match self {
            Self::Group(own) => Some(own),
            _ => None,
        }
    }
}

/// Denies devices to the members of the v2 group `dir`.
pub(super) fn deny_by_program(dir: &Path, devices: &[Device]) -> io::Result<()> {
    bpf::attach_to_group(File::open(dir)?.as_fd(), Occasion::Device, &program(devices))
}

/// Denies devices to the members of the v1 group `dir`.
pub(super) fn deny_by_group(dir: &Path, devices: &[Device]) -> io::Result<()> {
    devices.iter().try_for_each(|device| write(dir, "devices.deny", &format!("{} rwm", device.text())))
}

/// Tries the program in a group that is removed again, and the program with it.
fn try_program(dir: &PathBuf) -> io::Result<()> {
    make_dir(dir)?;
    let tried = deny_by_program(dir, &[Device { block: false, major: NVIDIA_MAJOR, minor: 0 }]);
    tried.and(fs::remove_dir(dir))
}

/// Returns the program that denies these devices and allows all else.
fn program(denied: &[Device]) -> Vec<Instruction> {
    use bpf::{ANSWER, CONTEXT, and, exit, load, set, unless};
    /// Registers for kind, major and minor number of the device in question.
    const ASKED: [u8; 3] = [2, 3, 4];
    /// Where the kernel's record (`struct bpf_cgroup_dev_ctx`) has these three.
    const PLACES: [i16; 3] = [0, 4, 8];
    /// The bits of the first field that are not the kind of access.
    const KIND: i32 = 0xffff;
    let mut code: Vec<Instruction> =
        ASKED.into_iter().zip(PLACES).map(|(to, place)| load(to, CONTEXT, place)).collect();
    code.push(and(ASKED[0], KIND));
    for device in denied {
        let wanted = [if device.block { 1 } else { 2 }, device.major as i32, device.minor as i32];
        let answer = [set(ANSWER, 0), exit()];
        for (place, (register, value)) in ASKED.into_iter().zip(wanted).enumerate() {
            // Another device: past the comparisons that are left, and the answer.
            code.push(unless(register, value, (wanted.len() - 1 - place + answer.len()) as i16));
        }
        code.extend(answer);
    }
    code.extend([set(ANSWER, 1), exit()]);
    code
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Device, program};
    use crate::sys::bpf::Instruction;

    /// Runs a program of the few instructions that are used here. `asked`: the kernel's record.
    fn answer(program: &[Instruction], asked: [u32; 3]) -> u64 {
        let mut registers = [0_u64; 11];
        let mut at = 0;
        loop {
            let Instruction { code, registers: named, offset, value } = program[at];
            let (to, from) = (usize::from(named & 15), usize::from(named >> 4));
            at += 1;
            match code {
                0x61 => {
                    assert_eq!(from, 1, "only the record is read");
                    registers[to] = u64::from(asked[usize::try_from(offset).unwrap() / 4]);
                }
                0x54 => registers[to] &= u64::from(value as u32),
                0xb7 => registers[to] = value as u64,
                0x56 if registers[to] as u32 != value as u32 => at += usize::try_from(offset).unwrap(),
                0x56 => {}
                0x95 => return registers[0],
                other => panic!("{other:#x} is not used"),
            }
        }
    }

    #[test]
    fn only_the_listed_devices_are_denied() {
        let device = |block, major, minor| Device { block, major, minor };
        let denied = [device(false, 195, 0), device(false, 195, 300), device(true, 8, 1 << 19)];
        let code = program(&denied);
        assert_eq!((code.len(), program(&[]).len()), (4 + 3 * 5 + 2, 6));
        // Access to read, write, make; then the kind: 1 block, 2 character.
        for access in 1..8 {
            let asked = |kind: u32, major, minor| answer(&code, [access << 16 | kind, major, minor]);
            for (kind, major, minor, allowed) in [
                (2, 195, 0, false),
                (2, 195, 1, true),
                (2, 195, 300, false),
                (1, 195, 0, true),
                (1, 8, 1 << 19, false),
                (2, 8, 1 << 19, true),
                (1, 8, 0, true),
                (2, 1, 3, true),
                (2, 0, 0, true),
            ] {
                assert_eq!(asked(kind, major, minor), u64::from(allowed), "{kind} {major}:{minor}");
            }
            assert_eq!(answer(&program(&[]), [access << 16 | 2, 195, 0]), 1);
        }
    }

    #[test]
    fn devices_are_known_by_their_files() {
        let null = Device::of(Path::new("/dev/null")).unwrap();
        assert_eq!((null, null.text()), (Device { block: false, major: 1, minor: 3 }, "c 1:3".to_owned()));
        assert!(Device::of(Path::new("/dev")).is_err() && Device::of(Path::new("/dev/nothing")).is_err());
        let absent = Device { block: false, major: 195, minor: 9999 };
        assert_eq!(Device::of(Path::new("/dev/nvidia9999")).unwrap(), absent, "its file may come later");
        assert!(Device::of(Path::new("/dev/nvidiactl9")).is_err());
    }
}
