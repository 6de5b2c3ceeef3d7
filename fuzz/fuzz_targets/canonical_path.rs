#![no_main]
//! See `causeway_fuzz::canonical_path`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| causeway_fuzz::canonical_path(data));
