//! How this process's memory grows.

/// Takes memory from the system in large pieces. glibc grows the heap of each thread but the first by single pages,
/// with a system call for each: too slow for threads that read a million jobs.
pub(crate) fn grow_in_large_pieces() {
    #[cfg(target_env = "gnu")]
    {
        /// As much as glibc reserves for a thread's heap.
        const PIECE_BYTES: libc::c_int = 64 << 20;
        /// What glibc itself comes to in time; it no longer looks for a value once it is told the other.
        const MAPPED_BYTES_MIN: libc::c_int = 32 << 20;
        // SAFETY: mallopt takes plain numbers; one that it does not like changes nothing.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
            libc::mallopt(libc::M_TOP_PAD, PIECE_BYTES);
        }
    }
}

/// Gives memory that is free back to the system: glibc keeps it otherwise.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a plain number, and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}
