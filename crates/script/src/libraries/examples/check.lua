-- Evaluates the expressions in ARGV[1], one a line, and returns each with its answer. It runs as well under
-- `valkey-cli eval`, which is where the answers in this folder come from.
local function show(value, depth)
  local kind = type(value)
  if kind == 'string' then
    return '"' .. value:gsub('[^\32-\126]', function(char) return string.format('\\x%02x', char:byte()) end) .. '"'
  elseif kind == 'number' then
    return string.format('%.17g', value)
  elseif kind == 'table' then
    if depth > 8 then return '{...}' end
    local parts = {}
    for key, element in pairs(value) do
      parts[#parts + 1] = '[' .. show(key, depth + 1) .. ']=' .. show(element, depth + 1)
    end
    table.sort(parts)
    return '{' .. table.concat(parts, ',') .. '}'
  elseif kind == 'userdata' then
    return value == cjson.null and 'NULL' or 'userdata'
  end
  return tostring(value)
end
local lines = {}
for line in ARGV[1]:gmatch('[^\n]+') do
  local code = loadstring('return ' .. line) or loadstring(line)
  local results = {pcall(code)}
  if not results[1] and type(results[2]) == 'string' then
    results[2] = results[2]:gsub('^%[string ".*"%]:%d+: ', '')
  end
  local last = 0
  for index in pairs(results) do last = math.max(last, index) end
  local parts = {}
  for index = 2, last do parts[#parts + 1] = show(results[index], 0) end
  lines[#lines + 1] = line .. ' --> ' .. (results[1] and '' or 'ERR ') .. table.concat(parts, ' , ')
end
return table.concat(lines, '\n')
