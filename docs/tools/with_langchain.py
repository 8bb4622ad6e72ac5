"""LangChain's OpenAI chat model against `astargate serve`: a text, a stream, log probabilities, a constraint."""

from langchain_openai import ChatOpenAI, OpenAI

URL = {"base_url": "http://127.0.0.1:8000/v1", "api_key": "unused", "model": "mini"}
PROMPT = "Write one sentence about a dog on a beach."

chat = ChatOpenAI(**URL, max_tokens=24, temperature=0.7, seed=1)
answer = chat.invoke([("system", "Be brief."), ("user", PROMPT)])
print(answer.content, answer.usage_metadata)
print("".join(chunk.content for chunk in chat.stream(PROMPT, stop=["."])))
known = chat.bind(logprobs=True).invoke(PROMPT).response_metadata["logprobs"]["content"]
print([(token["token"], round(token["logprob"], 2)) for token in known[:4]])
constrained = ChatOpenAI(
    **URL, max_tokens=24, extra_body={"constraint": {"type": "keywords", "keywords": ["dog", "beach"]}}
)
print(constrained.invoke("").content)
print(OpenAI(**URL, max_tokens=16, temperature=0.7).batch([PROMPT, "Write one sentence about a boat."]))
