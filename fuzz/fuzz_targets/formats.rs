#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| squall_fuzz::run("formats", bytes));
