//! What a program is linked with, as far as it shows that it will look for its peers.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use memchr::memmem;

/// Most bytes of a program that are looked at: the names of its libraries stand near its beginning.
const PROGRAM_BYTES: u64 = 256 << 10;

/// How a name begins that stands in a table of names.
const WORD: &[u8] = b"\0lib";
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
        let mut linked = Self::default();
        let Ok(file) = File::open(program) else { return linked };
        // In one piece: it is looked at for every step.
        let length = file.metadata().map_or(PROGRAM_BYTES, |meta| meta.len().min(PROGRAM_BYTES));
        let mut head = Vec::with_capacity(length as usize);
        if file.take(length).read_to_end(&mut head).is_err() || !head.starts_with(b"\x7fELF") {
            return linked;
        }
        for at in memmem::find_iter(&head, WORD) {
            let word = &head[at + 1..];
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
