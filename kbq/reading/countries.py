"""Countries: what answers to a query stand for; "Norwegian" stands for "Norway" where a country is asked for.

The table has adjectives and names of nationals, mostly as in the World Factbook of the CIA (nationality). To these come
some territories, states that are no more, parts of the United Kingdom, and other names that texts use.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kbq.answers import Answer
from kbq.text.answer_scores import normalise
from kbq.text.markers import slot_of

ASKED_FOR = re.compile(r"(?:\w+ )?country\b(?!'s| music)", re.IGNORECASE)  # at the beginning of a relation
# The names of each country that texts use and, behind a colon, its adjectives.
COUNTRIES = """
Afghanistan: Afghan | Albania: Albanian | Algeria: Algerian | Andorra: Andorran | Angola: Angolan
Argentina: Argentine, Argentinian, Argentinean | Armenia: Armenian | Australia: Australian
Austria-Hungary: Austro-Hungarian | Austria: Austrian | Azerbaijan: Azerbaijani | Bahamas: Bahamian | Bahrain: Bahraini
Bangladesh: Bangladeshi | Barbados: Barbadian | Belarus: Belarusian, Belarussian | Belgium: Belgian | Belize: Belizean
Benin: Beninese | Bhutan: Bhutanese | Bolivia: Bolivian | Bosnia and Herzegovina, Bosnia: Bosnian | Botswana: Botswanan
Brazil: Brazilian | Brunei: Bruneian | Bulgaria: Bulgarian | Burkina Faso: Burkinabe, Burkinabé, Burkinabè
Burundi: Burundian | Cambodia: Cambodian | Cameroon: Cameroonian | Canada: Canadian | Cape Verde: Cape Verdean
Chad: Chadian | Chile: Chilean | China, People's Republic of China: Chinese | Colombia: Colombian | Comoros: Comorian
Costa Rica: Costa Rican | Croatia: Croatian, Croat | Cuba: Cuban | Cyprus: Cypriot | Czech Republic, Czechia: Czech
Czechoslovakia: Czechoslovak, Czechoslovakian | Denmark: Danish | Djibouti: Djiboutian | East Germany: East German
Ecuador: Ecuadorian, Ecuadorean | Egypt: Egyptian | El Salvador: Salvadoran, Salvadorian | England: English
Eritrea: Eritrean | Estonia: Estonian | Eswatini, Swaziland: Swazi | Ethiopia: Ethiopian | Fiji: Fijian
Finland: Finnish | France: French | Gabon: Gabonese | Gambia: Gambian | Georgia: Georgian | Germany: German
Ghana: Ghanaian | Greece: Greek | Greenland: Greenlandic | Grenada: Grenadian | Guatemala: Guatemalan | Guinea: Guinean
Guyana: Guyanese | Haiti: Haitian | Honduras: Honduran | Hong Kong: Hongkonger | Hungary: Hungarian
Iceland: Icelandic | India: Indian | Indonesia: Indonesian | Iran: Iranian | Iraq: Iraqi
Ireland, Republic of Ireland: Irish | Israel: Israeli | Italy: Italian
Ivory Coast, Côte d'Ivoire, Côte d’Ivoire: Ivorian, Ivoirian | Jamaica: Jamaican | Japan: Japanese | Jordan: Jordanian
Kazakhstan: Kazakh, Kazakhstani | Kenya: Kenyan | Kosovo: Kosovar, Kosovan | Kuwait: Kuwaiti
Kyrgyzstan: Kyrgyz, Kyrgyzstani | Laos: Laotian, Lao | Latvia: Latvian | Lebanon: Lebanese | Lesotho: Basotho
Liberia: Liberian | Libya: Libyan | Liechtenstein: Liechtensteiner | Lithuania: Lithuanian
Luxembourg: Luxembourgish, Luxembourgian | Madagascar: Malagasy | Malawi: Malawian | Malaysia: Malaysian
Maldives: Maldivian | Mali: Malian | Malta: Maltese | Mauritania: Mauritanian | Mauritius: Mauritian | Mexico: Mexican
Moldova: Moldovan | Monaco: Monegasque, Monégasque, Monacan | Mongolia: Mongolian | Montenegro: Montenegrin
Morocco: Moroccan | Mozambique: Mozambican | Myanmar, Burma: Burmese | Namibia: Namibian | Nepal: Nepalese, Nepali
Netherlands: Dutch | Nicaragua: Nicaraguan | Niger: Nigerien | Nigeria: Nigerian | North Korea: North Korean
North Macedonia, Macedonia: Macedonian | Northern Ireland: Northern Irish | Norway: Norwegian | Oman: Omani
Ottoman Empire: Ottoman | Pakistan: Pakistani | Palestine: Palestinian | Panama: Panamanian
Papua New Guinea: Papua New Guinean | Paraguay: Paraguayan | Peru: Peruvian | Philippines: Filipino, Philippine
Poland: Polish | Portugal: Portuguese | Prussia: Prussian | Puerto Rico: Puerto Rican | Qatar: Qatari
Romania: Romanian | Russia: Russian | Rwanda: Rwandan | Samoa: Samoan | San Marino: Sammarinese
Saudi Arabia: Saudi, Saudi Arabian | Scotland: Scottish | Senegal: Senegalese | Serbia: Serbian
Seychelles: Seychellois | Sierra Leone: Sierra Leonean | Singapore: Singaporean | Slovakia: Slovak, Slovakian
Slovenia: Slovenian, Slovene | Somalia: Somali | South Africa: South African | South Korea: South Korean
South Sudan: South Sudanese | Soviet Union, USSR: Soviet | Spain: Spanish | Sri Lanka: Sri Lankan | Sudan: Sudanese
Suriname: Surinamese | Sweden: Swedish | Switzerland: Swiss | Syria: Syrian | Taiwan: Taiwanese
Tajikistan: Tajik, Tajikistani | Tanzania: Tanzanian | Thailand: Thai | Togo: Togolese | Tonga: Tongan
Trinidad and Tobago: Trinidadian | Tunisia: Tunisian | Turkey: Turkish | Turkmenistan: Turkmen | Uganda: Ugandan
Ukraine: Ukrainian | United Arab Emirates: Emirati | United Kingdom, UK, Britain, Great Britain: British
United States, United States of America, USA, US, America: American | Uruguay: Uruguayan | Uzbekistan: Uzbek
Vanuatu: Ni-Vanuatu | Venezuela: Venezuelan | Vietnam: Vietnamese | Wales: Welsh | West Germany: West German
Yemen: Yemeni | Yugoslavia: Yugoslav, Yugoslavian | Zambia: Zambian | Zimbabwe: Zimbabwean
"""


def meanings(query: str, answers: Sequence[Answer]) -> list[str]:
    """Return the meaning of each answer to a query, as a text without case, articles and punctuation.

    An answer means itself; but where a slot asks for a country, an adjective means the name of its country, if that
    name is among the answers from the same paragraph.
    """
    texts = [normalise(answer.text) for answer in answers]
    slot = slot_of(query)
    if slot is None or not ASKED_FOR.match(slot[1]):
        return texts
    named: dict[tuple[str, str, int], str] = {}  # by country and paragraph
    for text, answer in sorted(zip(texts, answers, strict=True), key=lambda one: one[1].start):
        if text in NAMES:
            named.setdefault((NAMES[text], answer.page_id, answer.paragraph), text)
    return [
        named.get((ADJECTIVES.get(text, ""), answer.page_id, answer.paragraph), text)
        for text, answer in zip(texts, answers, strict=True)
    ]


def _tables() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the countries, each as its first name, by their names and by their adjectives."""
    by_name: dict[str, str] = {}
    by_adjective: dict[str, str] = {}
    for entry in COUNTRIES.strip().replace("\n", "|").split("|"):
        names, adjectives = ([normalise(word) for word in words.split(",")] for words in entry.split(":"))
        by_name |= dict.fromkeys(names, names[0])
        by_adjective |= dict.fromkeys(adjectives, names[0])
    return MappingProxyType(by_name), MappingProxyType(by_adjective)


NAMES, ADJECTIVES = _tables()
