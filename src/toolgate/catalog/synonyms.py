"""Words that tools and those who look for them use for the same thing.

A short list on purpose: only what is general to tools, nothing that names a product or a service, except for
the kinds of files that people call by their program. Chinese ones are pairs of characters, as terms are.
"""

from collections.abc import Mapping
from typing import Final

from toolgate.catalog.search.terms import stem

_SAME: Final = """
    search find lookup query discover locate
    create make generate build new add write
    delete remove erase
    get fetch retrieve read obtain view show
    update edit modify change
    change diff difference
    change history log
    list enumerate show
    save write store
    send post publish
    calculate compute
    convert transform
    picture image photo png jpg figure
    chart plot graph draw
    docx word
    xlsx excel spreadsheet workbook sheet csv
    pptx ppt powerpoint presentation slide
    md markdown
    website webpage page site url
    directory folder
    map location place
    directions route
    command shell terminal
    paper article
    news headline story
    movie film video
    trending trend hot rank popular
    price quote
    创建 新建 新增 添加
    删除 移除
    搜索 查询 查找 检索
    获取 读取 查看
    更新 修改 编辑
    图片 图像 照片
"""


def _by_term() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for line in _SAME.strip().splitlines():
        group = [stem(word) for word in line.split()]
        for term in group:
            found.setdefault(term, {}).update(dict.fromkeys(other for other in group if other != term))
    return {term: tuple(others) for term, others in found.items()}


SYNONYMS: Final = _by_term()
"""Term to the others that mean about the same."""
