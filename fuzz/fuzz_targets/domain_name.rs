#![no_main]
//! See `causeway_fuzz::domain_name`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| causeway_fuzz::domain_name(data));
