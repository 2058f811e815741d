"""A stand-in for a language model: it answers each turn with the next command of a script, and at
the end with what the last command printed. It speaks the APIs of Anthropic, OpenAI (chat and
responses) and Gemini, streamed and whole."""

import http.server
import json
import threading

SHELLS = ("Bash", "bash", "run_shell", "terminal", "exec_command", "shell_command", "shell")


def scripted(server, results, tools):
    """The next command, or the final text: ("call", name, arguments) or ("text", text)."""
    shell = next((name for name in SHELLS if name in tools), None)
    if shell is None:
        # A harness asks its model for other things too, like a title.
        return ("text", "ok")
    if len(results) >= len(server.script):
        return ("text", f"DONE {results[-1] if results else ''}"[:4000])
    command = server.script[len(results)]
    server.asked.append(command)
    schema = (tools[shell] or {}).get("properties") or {}
    key = next((key for key in ("command", "cmd", "commands") if key in schema), "command")
    about = schema.get(key) or {}
    is_list = about.get("type") == "array" or any(one.get("type") == "array" for one in about.get("anyOf", []))
    if is_list:
        command = ["bash", "-lc", command] if shell == "shell" else [command]
    return ("call", shell, {key: command})


def text_of(content):
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(block.get("text", "") for block in content if isinstance(block, dict))
    return json.dumps(content)


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two writes; together they would wait for each other.
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.whole({"data": [], "models": []})

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        body = json.loads(raw or b"{}")
        path = self.path.split("?")[0]
        self.server.paths.append(path)
        if path.endswith("/messages"):
            self.anthropic(body)
        elif path.endswith("/chat/completions"):
            self.chat(body)
        elif path.endswith("/responses"):
            self.openai_responses(body)
        elif "enerateContent" in path:
            self.gemini(body, "stream" in path)
        else:
            self.whole({"input_tokens": 1})

    def whole(self, value, kind="application/json"):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def events(self, events, named=True):
        lines = []
        for event in events:
            if named and isinstance(event, dict):
                lines.append(f"event: {event['type']}\n")
            lines.append(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
        self.whole("".join(lines).encode(), "text/event-stream")

    def anthropic(self, body):
        results = []
        for message in body.get("messages", []):
            for block in message["content"] if isinstance(message["content"], list) else []:
                if block.get("type") == "tool_result":
                    results.append(text_of(block.get("content")))
        tools = {tool["name"]: tool.get("input_schema") for tool in body.get("tools") or []}
        turn = scripted(self.server, results, tools)
        usage = {"input_tokens": 1, "output_tokens": 1}
        base = {"id": f"msg_{len(results)}", "type": "message", "role": "assistant", "model": body.get("model"), "stop_sequence": None, "usage": usage}
        if turn[0] == "call":
            block = {"type": "tool_use", "id": f"toolu_{len(results)}", "name": turn[1], "input": turn[2]}
            start, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(turn[2])}
        else:
            block = {"type": "text", "text": turn[1]}
            start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": turn[1]}
        stop = "tool_use" if turn[0] == "call" else "end_turn"
        if not body.get("stream"):
            return self.whole({**base, "content": [block], "stop_reason": stop})
        self.events([
            {"type": "message_start", "message": {**base, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ])

    def chat(self, body):
        results = [text_of(message.get("content")) for message in body["messages"] if message["role"] == "tool"]
        tools = {tool["function"]["name"]: tool["function"].get("parameters") for tool in body.get("tools") or []}
        turn = scripted(self.server, results, tools)
        message = {"role": "assistant", "content": None}
        if turn[0] == "call":
            function = {"name": turn[1], "arguments": json.dumps(turn[2])}
            message["tool_calls"] = [{"index": 0, "id": f"call_{len(results)}", "type": "function", "function": function}]
        else:
            message["content"] = turn[1]
        reason = "tool_calls" if turn[0] == "call" else "stop"
        base = {"id": f"chat_{len(results)}", "created": 1, "model": body.get("model")}
        if not body.get("stream"):
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return self.whole({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
        chunk = {**base, "object": "chat.completion.chunk"}
        self.events([
            {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            "[DONE]",
        ], named=False)

    def openai_responses(self, body):
        items = body.get("input") if isinstance(body.get("input"), list) else []
        results = [text_of(item.get("output")) for item in items if str(item.get("type", "")).endswith("call_output")]
        tools = {tool.get("name", tool.get("type")): tool.get("parameters") for tool in body.get("tools") or []}
        turn = scripted(self.server, results, tools)
        number = len(results)
        if turn[0] == "call":
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": turn[1], "arguments": json.dumps(turn[2]), "status": "completed"}
        else:
            content = {"type": "output_text", "text": turn[1], "annotations": []}
            item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [content]}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        base = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": body.get("model"), "parallel_tool_calls": False, "tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None, "instructions": None, "metadata": {}}
        done = {**base, "status": "completed", "output": [item], "usage": usage}
        if not body.get("stream"):
            return self.whole(done)
        self.events([
            {"type": "response.created", "sequence_number": 0, "response": {**base, "status": "in_progress", "output": [], "usage": None}},
            {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item},
            {"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": item},
            {"type": "response.completed", "sequence_number": 3, "response": done},
        ])

    def gemini(self, body, stream):
        parts = [part for content in body.get("contents", []) for part in content.get("parts", [])]
        results = [json.dumps(part["functionResponse"].get("response")) for part in parts if "functionResponse" in part]
        tools = {}
        for tool in body.get("tools") or []:
            for function in tool.get("functionDeclarations", []):
                tools[function["name"]] = function.get("parameters") or function.get("parametersJsonSchema")
        turn = scripted(self.server, results, tools)
        part = {"functionCall": {"name": turn[1], "args": turn[2]}} if turn[0] == "call" else {"text": turn[1]}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        answer = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "stand-in"}
        self.events([answer], named=False) if stream else self.whole(answer)


def start(script):
    """A server that plays this script, once for each conversation."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.script, server.asked, server.paths = script, [], []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    return server
