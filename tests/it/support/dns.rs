//! A nameserver that answers every A question with given addresses, and counts the questions.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub struct Nameserver {
    pub address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Nameserver {
    pub fn answering(addresses: &[&str]) -> Self {
        Self::start(&[addresses], 60)
    }

    /// Answers with one list after the other, each with a TTL of 0.
    pub fn in_turn(answers: &[&[&str]]) -> Self {
        Self::start(answers, 0)
    }

    fn start(answers: &[&[&str]], ttl: u8) -> Self {
        let parse = |list: &&[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
        let answers: Vec<Vec<Ipv4Addr>> = answers.iter().map(parse).collect();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            let mut turn = 0;
            while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                let addresses = &answers[turn % answers.len()];
                let answer = answer(&buffer[..length], addresses, ttl);
                // Questions for IPv6 come in between.
                turn += usize::from(answer[7] > 0);
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
fn answer(question: &[u8], addresses: &[Ipv4Addr], ttl: u8) -> Vec<u8> {
    let name_length = question[12..].iter().position(|byte| *byte == 0).unwrap();
    let end = 12 + name_length + 5;
    let kind = u16::from_be_bytes([question[end - 4], question[end - 3]]);
    let records = if kind == 1 { addresses } else { &[] };
    let mut answer = question[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
    answer.extend(&question[12..end]);
    for address in records {
        answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, ttl, 0, 4]);
        answer.extend(address.octets());
    }
    answer
}
