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

/// Drops the program's code from this process; it comes back from the page cache where it is used. For lack of memory
/// the kernel kills the process with the most mapped memory, and of a large program most is mapped and not used.
pub(crate) fn forget_code() {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
    let own = forget_code as *const () as usize;
    let code = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let (from, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
        // Never a mapping that may have pages of our own.
        (rest.starts_with("r-xp") && (from..to).contains(&own)).then_some((from, to))
    });
    let Some((from, to)) = code else { return };
    // SAFETY: the range is a whole mapping of this program's file that is never written, so each page that is dropped is
    // read again from the file with the same content.
    unsafe {
        libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_DONTNEED);
    }
}
