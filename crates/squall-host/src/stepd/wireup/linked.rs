//! What a program is linked with, as far as it shows that it will look for its peers.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Most bytes of a program that are looked at: the names of its libraries stand near its beginning.
const PROGRAM_BYTES: u64 = 256 << 10;

/// Beginnings of the names of libraries whose programs speak PMIx or PMI.
const MPI: [&[u8]; 3] = [b"libmpi.so.", b"libmpi_", b"libpmix.so."];
/// The same for MPICH, which speaks PMI.
const MPICH: &[u8] = b"libmpich";
/// The same for OpenSHMEM.
const SHMEM: &[u8] = b"liboshmem.so.";

/// What is known of a program. A script, and a program that loads its libraries later, show nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Linked {
    /// With an MPI that speaks PMIx.
    pub(super) mpi: bool,
    /// With MPICH.
    pub(super) mpich: bool,
    /// With OpenSHMEM.
    pub(super) shmem: bool,
}

impl Linked {
    /// Looks at a program.
    pub(super) fn of(program: &Path) -> Self {
        let mut head = Vec::new();
        let read = File::open(program).and_then(|file| file.take(PROGRAM_BYTES).read_to_end(&mut head));
        if read.is_err() || !head.starts_with(b"\x7fELF") {
            return Self::default();
        }
        let mut linked = Self::default();
        for word in head.split(|&b| b == 0).filter(|word| word.starts_with(b"lib")) {
            linked.mpi |= MPI.iter().any(|name| word.starts_with(name));
            linked.mpich |= word.starts_with(MPICH);
            linked.shmem |= word.starts_with(SHMEM);
        }
        linked
    }

    /// What either is.
    pub(super) fn or(self, other: Self) -> Self {
        Self { mpi: self.mpi || other.mpi, mpich: self.mpich || other.mpich, shmem: self.shmem || other.shmem }
    }
}
