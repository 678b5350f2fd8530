"""The frame of every page: search by keyboard, rows that are links, guides, what needs attention."""

from playwright.sync_api import Page, expect

from tests.scenarios.gateway import Gateway


def test_ctrl_k_finds_records_pages_and_actions_and_gives_the_focus_back(tab: Page) -> None:
    tab.goto("/console/catalog")
    expect(tab.get_by_role("heading", name="Catalog", exact=True)).to_be_visible()
    tab.keyboard.press("Control+k")
    field = tab.get_by_role("combobox", name="Search or run a command")
    expect(field).to_be_focused()
    field.fill("memo")
    expect(tab.get_by_role("option").first).to_contain_text("Server")
    tab.keyboard.press("Escape")
    expect(field).to_be_hidden()
    tab.keyboard.press("Control+k")
    field.fill("memo")
    tab.keyboard.press("Enter")
    expect(tab).to_have_url("/console/servers/memory")
    tab.get_by_role("button", name="Search or run a command").press("Enter")
    field.fill("new task")
    tab.keyboard.press("Enter")
    expect(tab).to_have_url("/console/tasks/-/new")


def test_what_was_typed_can_be_asked_of_the_scope_lens(tab: Page) -> None:
    tab.goto("/console/servers")
    expect(tab.get_by_role("row").filter(has_text="git")).to_be_visible()
    tab.keyboard.press("Control+k")
    tab.get_by_role("combobox", name="Search or run a command").fill("git.git_push")
    option = tab.get_by_role("option", name="Why is “git.git_push” missing?")
    for _ in range(3):
        if option.get_attribute("aria-selected") != "true":
            tab.keyboard.press("ArrowDown")
    expect(option).to_have_attribute("aria-selected", "true")
    tab.keyboard.press("Enter")
    expect(tab).to_have_url("/console/scope?why=git.git_push")


def test_a_row_is_a_link_that_also_opens_in_a_tab_of_its_own(tab: Page) -> None:
    tab.goto("/console/servers")
    row = tab.get_by_role("row").filter(has_text="git")
    expect(row).to_be_visible()
    box = row.bounding_box()
    assert box is not None
    place = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    with tab.context.expect_page() as opening:
        tab.mouse.click(*place, button="middle")
    expect(opening.value).to_have_url("/console/servers/git")
    expect(tab).to_have_url("/console/servers")
    tab.mouse.click(*place)
    expect(tab).to_have_url("/console/servers/git")
    tab.get_by_role("navigation", name="Breadcrumbs").get_by_role("link", name="Servers").click()
    expect(tab).to_have_url("/console/servers")


def test_every_page_leads_to_its_guide_and_guides_to_each_other(tab: Page) -> None:
    tab.goto("/console/servers")
    tab.get_by_role("main").get_by_role("link", name="Guide", exact=True).click()
    expect(tab.get_by_role("heading", name="Register MCP servers")).to_be_visible()
    expect(tab.get_by_role("main").get_by_role("table").first).to_be_visible()
    tab.get_by_role("link", name="All guides").click()
    tab.get_by_role("main").get_by_role("link", name="Troubleshooting").first.click()
    expect(tab.get_by_role("heading", name="Troubleshooting", level=1)).to_be_visible()
    tab.goto("/console/guides/how-to/no-such-guide")
    expect(tab.get_by_text("No such guide")).to_be_visible()


def test_what_needs_attention_is_counted_in_the_menu(tab: Page, gateway: Gateway) -> None:
    menu = tab.get_by_role("navigation", name="Pages")
    tab.goto("/console/")
    expect(menu.get_by_role("link", name="Servers", exact=True)).to_be_visible()
    broken = {"transport": "stdio", "stdio": {"command": "/nonexistent/server"}, "allowed_tools": ["*"]}
    gateway.put("/admin/api/mcp/servers/broken", broken)
    expect(menu.get_by_role("link", name="Servers 1 need attention")).to_be_visible()
    gateway.put("/admin/api/mcp/servers/broken", {**broken, "enabled": False})
    expect(menu.get_by_role("link", name="Servers", exact=True)).to_be_visible()
