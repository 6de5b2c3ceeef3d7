#![no_main]
//! See `causeway_fuzz::first_bytes`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| causeway_fuzz::first_bytes(data));
