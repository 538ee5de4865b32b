"use strict";
// Spreadsheet: rows of texts become the parts of an XLSX file, a ZIP of stored members. Texts are never formulas there.
// The first row is the header, which is bold and stays in sight.
// Sources: ECMA-376, parts 1 and 2; APPNOTE.TXT of PKWARE.

const XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>';
const OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
const PACKAGE = "http://schemas.openxmlformats.org/package/2006";
const TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml";
const SHEET_NAME = "xl/worksheets/sheet1.xml";
const FROZEN = '<sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/>'
  + "</sheetView></sheetViews>";
const STYLES = `<fonts count="2"><font/><font><b/></font></fonts><fills count="2"><fill><patternFill patternType="none"/></fill><fill>`
  + '<patternFill patternType="gray125"/></fill></fills><borders count="1"><border/></borders><cellStyleXfs count="1"><xf/></cellStyleXfs>'
  + '<cellXfs count="2"><xf xfId="0"/><xf xfId="0" fontId="1" applyFont="1"/></cellXfs>'  // style 1 is bold
  + '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles>';

function spreadsheet(rows) {
  const escaped = text => text.replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g, "")
    .replace(/[&<>]/g, letter => `&#${letter.charCodeAt(0)};`);
  const cell = (text, style) => text === "" ? "<c/>" : `<c${style} t="inlineStr"><is><t xml:space="preserve">${escaped(text)}</t></is></c>`;
  const drawn = (row, place) => `<row>${row.map(text => cell(text, place ? "" : ' s="1"')).join("")}</row>`;
  const related = targets => `${XML}<Relationships xmlns="${PACKAGE}/relationships">`
    + Object.entries(targets).map(([kind, target], place) => `<Relationship Id="r${place + 1}" Type="${OFFICE}/${kind}" Target="${target}"/>`).join("")
    + "</Relationships>";
  return zipped({
    "[Content_Types].xml": `${XML}<Types xmlns="${PACKAGE}/content-types"><Default Extension="rels" `
      + 'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
      + `<Override PartName="/xl/workbook.xml" ContentType="${TYPE}.sheet.main+xml"/>`
      + `<Override PartName="/xl/styles.xml" ContentType="${TYPE}.styles+xml"/>`
      + `<Override PartName="/${SHEET_NAME}" ContentType="${TYPE}.worksheet+xml"/></Types>`,
    "_rels/.rels": related({officeDocument: "xl/workbook.xml"}),
    "xl/workbook.xml": `${XML}<workbook xmlns="${MAIN}" xmlns:r="${OFFICE}"><sheets><sheet name="table" sheetId="1" r:id="r1"/></sheets></workbook>`,
    "xl/_rels/workbook.xml.rels": related({worksheet: "worksheets/sheet1.xml", styles: "styles.xml"}),
    "xl/styles.xml": `${XML}<styleSheet xmlns="${MAIN}">${STYLES}</styleSheet>`,
    [SHEET_NAME]: `${XML}<worksheet xmlns="${MAIN}">${FROZEN}<sheetData>${rows.map(drawn).join("")}</sheetData></worksheet>`,
  });
}

function zipped(members) {
  const parts = [], directory = [];
  let place = 0, size = 0;
  for (const [name, text] of Object.entries(members)) {
    const own = new TextEncoder().encode(name), content = new TextEncoder().encode(text);
    // Version, flags (names are UTF-8), method, time, date (1980-01-01), checksum, sizes, length of the name, of extras.
    const facts = [[20, 2], [0x800, 2], [0, 2], [0, 2], [33, 2], [checksum(content), 4], [content.length, 4], [content.length, 4],
      [own.length, 2], [0, 2]];
    parts.push(bytes([[0x04034b50, 4], ...facts]), own, content);
    directory.push(bytes([[0x02014b50, 4], [20, 2], ...facts, [0, 2], [0, 2], [0, 2], [0, 4], [place, 4]]), own);
    place += 30 + own.length + content.length;
    size += 46 + own.length;
  }
  const count = directory.length / 2;
  return [...parts, ...directory, bytes([[0x06054b50, 4], [0, 2], [0, 2], [count, 2], [count, 2], [size, 4], [place, 4], [0, 2]])];
}

const bytes = numbers => Uint8Array.from(numbers.flatMap(([number, length]) =>
  Array.from({length}, (_, place) => (number >>> (8 * place)) & 255)));

function checksum(content) {
  let sum = -1;
  for (const byte of content) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}
