"""LlamaIndex's OpenAILike against `astargate serve`: a chat, a completion, a stream, a constraint."""

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

URL = {"api_base": "http://127.0.0.1:8000/v1", "api_key": "unused", "model": "mini", "max_tokens": 24}
PROMPT = "Write one sentence about a dog on a beach."

chat = OpenAILike(**URL, is_chat_model=True, temperature=0.7)
print(chat.chat([ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content=PROMPT)]))
print("".join(chunk.delta or "" for chunk in chat.stream_complete(PROMPT)))
print(OpenAILike(**URL, temperature=0.7).complete(PROMPT))
constraint = {"constraint": {"type": "keywords", "keywords": ["dog", "beach"]}}
print(OpenAILike(**URL, is_chat_model=True, additional_kwargs={"extra_body": constraint}).complete("Be brief."))
