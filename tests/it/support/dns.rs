//! A nameserver that answers every A question with the same addresses, and counts.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub struct Nameserver {
    pub address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Nameserver {
    pub fn answering(addresses: &[&str]) -> Self {
        let addresses: Vec<Ipv4Addr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                let answer = answer(&buffer[..length], &addresses);
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = socket.send_to(&answer, peer);
            }
        });
        Nameserver { address, asked }
    }

    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Id, flags, one question echoed, then one record per address where the question is for A.
fn answer(question: &[u8], addresses: &[Ipv4Addr]) -> Vec<u8> {
    let name_length = question[12..].iter().position(|byte| *byte == 0).unwrap();
    let end = 12 + name_length + 5;
    let kind = u16::from_be_bytes([question[end - 4], question[end - 3]]);
    let records = if kind == 1 { addresses } else { &[] };
    let mut answer = question[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
    answer.extend(&question[12..end]);
    for address in records {
        answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(address.octets());
    }
    answer
}
