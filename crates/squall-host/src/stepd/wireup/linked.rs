//! Finds out whether a program is linked with MPI or OpenSHMEM, so that it will need wire-up.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use memchr::memmem;

/// Most bytes of a program that are read: the names of its libraries are near its beginning.
const PROGRAM_BYTES: u64 = 256 << 10;

/// Beginning of a library's name in the string table of a program.
const WORD: &[u8] = b"\0lib";
/// Prefixes of names of libraries; programs linked with them use PMIx or PMI.
const MPI: [&[u8]; 3] = [b"libmpi.so.", b"libmpi_", b"libpmix.so."];
/// Prefix of the name of MPICH's library; its programs use PMI.
const MPICH: &[u8] = b"libmpich";
/// Prefix of the name of OpenSHMEM's library.
const SHMEM: &[u8] = b"liboshmem.so.";

/// Libraries with which a program is linked. Scripts, and programs that load their libraries later, show none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Linked {
    /// Linked with an MPI that uses PMIx.
    pub(super) mpi: bool,
    /// Linked with MPICH.
    pub(super) mpich: bool,
    /// Linked with OpenSHMEM.
    pub(super) shmem: bool,
}

impl Linked {
    /// Detects the libraries of a program by the beginning of its file.
    pub(super) fn of(program: &Path) -> Self {
        let mut linked = Self::default();
        let Ok(file) = File::open(program) else { return linked };
        // One read: this is done for every step.
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

    /// Combines the findings for two programs: a library counts if either program is linked with it.
    pub(super) fn or(self, other: Self) -> Self {
        Self { mpi: self.mpi || other.mpi, mpich: self.mpich || other.mpich, shmem: self.shmem || other.shmem }
    }
}
