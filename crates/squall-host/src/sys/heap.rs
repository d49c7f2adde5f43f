//! Tunes how this process's memory grows and shrinks.

/// Has memory taken from the system in large pieces. glibc grows the heap of each thread but the first by single pages,
/// with a system call for each: too slow for threads that read a million jobs.
pub(crate) fn grow_in_large_pieces() {
    #[cfg(target_env = "gnu")]
    {
        /// Size that glibc reserves for a thread's heap, bytes.
        const PIECE_BYTES: libc::c_int = 64 << 20;
        /// Size from which glibc maps an allocation separately, bytes. Left alone, glibc would in time adjust it to
        /// this value; setting `M_TOP_PAD` turns that off.
        const MAPPED_BYTES_MIN: libc::c_int = 32 << 20;
        // SAFETY: mallopt takes plain numbers; one that it does not like changes nothing.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
            libc::mallopt(libc::M_TOP_PAD, PIECE_BYTES);
        }
    }
}

/// Returns free memory to the system; glibc would keep it.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a plain number, and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}
